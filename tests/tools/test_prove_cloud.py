"""The program that is for the real Vertex AI, with that of this machine."""

import re
import sys
from unittest import mock

import pytest
import requests

from tests.cloud import rules
from tests.cloud.conftest import IMAGE, PIPELINE, YOU, cloud  # noqa: F401 (a fixture)
from tests.cloud.faults import ResetError
from tools.prove_cloud import __main__ as program
from tools.prove_cloud import guesses

FLAGS = f"--project demo-project --bucket gs://demo --image {IMAGE}"
ACCOUNT = "proves@demo-project.iam.gserviceaccount.com"
ARGS = program.parser().parse_args(f"{FLAGS} --service-account {ACCOUNT} --gpu".split())
REQUESTS = program.requests("gs://demo/prove-000000", ARGS)


def test_nothing_is_sent_without_yes(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["prove", *FLAGS.split()])
    monkeypatch.setattr("builtins.input", lambda _: "")
    monkeypatch.setattr(program, "prove", lambda *_: pytest.fail("it was sent"))
    assert program.main() == 1
    printed = capsys.readouterr().out
    assert "at most 1.25 machine-hours, about 0.34 USD\n" in printed
    assert all(f"  {claim}\n" in printed for claim in program.claims())
    assert program.cost(REQUESTS)[1] < 1  # With the machine that has a GPU.
    sys.argv.append("--dry-run")
    assert program.main() == 0 and '"display_name": "prove-' in capsys.readouterr().out


@pytest.fixture
def broken(vertex, monkeypatch):
    """Requests for the guesses, to a Vertex AI of this machine."""
    monkeypatch.setattr(guesses, "WAIT_S", 0.0)
    values = guesses.values_for(ARGS, "prove-000000", 123)
    return guesses.Requests(requests.Session(), f"{vertex.url}/{vertex.location}", values)


def test_wrong_guesses_are_undone(vertex, broken):
    """Without the rules that are guesses each request is taken, and all that it makes undone."""
    vertex.polls = 1
    kept = [rule for rule in rules.RULES if not rule.get("guess")]
    with mock.patch.object(rules, "RULES", kept):
        rules.rules.cache_clear()
        taken = {*broken.refusals().values()}
    rules.rules.cache_clear()
    broken.undo()
    assert taken == {"was taken, and undone"}
    left = (vertex.custom_jobs, vertex.pipeline_jobs, vertex.schedules, vertex.batches)
    assert not any(each.items for each in left)
    assert not vertex.models.versions and not vertex.endpoints.items


def test_interrupted_proof_deletes_all(vertex, broken, capsys):
    """Also if a request to delete gets no answer."""
    broken_off, delete = [], vertex.custom_jobs.delete

    def answer(request):
        if request.path not in broken_off:
            broken_off.append(request.path)
            raise ResetError
        return delete(request)

    vertex.route("DELETE", "{parent}/customJobs/{id}", answer)
    bucket = mock.Mock(**{"list_blobs.return_value": [blob := mock.Mock()]})
    clock = mock.Mock(**{"monotonic.return_value": 0.0, "sleep.side_effect": KeyboardInterrupt})
    with mock.patch.object(program, "time", clock), pytest.raises(KeyboardInterrupt):
        program.prove(REQUESTS, bucket, "prove-000000", broken)
    assert not vertex.custom_jobs.items and not vertex.models.versions
    assert len(broken_off) == len(REQUESTS)
    assert blob.delete.call_count == 1 and "left behind" not in capsys.readouterr().err


@pytest.mark.cloud
def test_every_check_has_answer_here(cloud):  # noqa: F811
    """In the bucket of no test, as a job tries what the mount of others must not be asked for."""
    members = [f"serviceAccount:{email}" for email in (YOU, PIPELINE)]
    roles = ("roles/storage.legacyBucketReader", "roles/storage.objectUser")
    cloud.allow(bindings=[["gs://demo", role, member, ""] for role in roles for member in members])
    printed = cloud.printed(f"-m tools.prove_cloud {FLAGS} --service-account {PIPELINE} --yes")
    rows = re.findall(r"^\| (\d+)\. .*? \| (.*) \| `make prove-cloud`.* \|$", printed, re.MULTILINE)
    answers = dict(rows)
    assert answers["2"].endswith("lone/workerpool0-0-0 all can be imported")
    assert {f"restart-all/workerpool{i}-0-1" for i in (0, 1)} <= {*answers["4"].split()}
    assert [*answers.values()].count("not looked at") == 1  # No GPU was asked for.
    tried = [answer for number, answer in rows if number == "17"]
    assert len(tried) == len(guesses.GUESSES)
    assert all(answer.startswith("List of found errors") for answer in tried), tried
    assert "left behind" not in printed and not list(cloud.files.parent.glob("demo/prove-*"))

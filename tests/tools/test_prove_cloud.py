"""`python -m tests.tools.test_prove_cloud` writes the golden requests anew.

Look at `git diff` before a commit.
"""

import pathlib
import re
import sys
from unittest import mock

import pytest
from google.protobuf import empty_pb2

from tests.cloud.collection import operation
from tests.cloud.conftest import IMAGE, cloud  # noqa: F401 (a fixture)
from tools.prove_cloud import __main__ as program

GOLDEN = pathlib.Path(__file__).with_name("bodies.json")
FLAGS = f"--project demo-project --bucket gs://demo --image {IMAGE}"
ACCOUNT = "proves@demo-project.iam.gserviceaccount.com"
ARGS = program.parser().parse_args(f"{FLAGS} --service-account {ACCOUNT} --gpu".split())
REQUESTS = program.requests("gs://demo/prove-000000", ARGS)


def test_requests_are_as_reviewed():
    assert program.shown(REQUESTS) == GOLDEN.read_text()


def test_nothing_is_sent_without_yes(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["prove", *FLAGS.split()])
    monkeypatch.setattr("builtins.input", lambda _: "")
    monkeypatch.setattr(program, "prove", lambda *_: pytest.fail("it was sent"))
    assert program.main() == 1 and "at most 1.25 machine-hours" in capsys.readouterr().out


def test_table_has_what_page_promises():
    page = pathlib.Path("docs/CLOUD.md").read_text()
    items = re.findall(r"^(\d+)\. (.*(?:\n {3,}.*)*)", page, re.MULTILINE)
    shown = [int(number) for number, item in items if "Shown by nothing" not in item]
    assert [number for number, *_ in program.SHOWN] == shown


def test_interrupted_proof_deletes_jobs(vertex, capsys):
    deleted = []

    def delete(request, parent, id):
        job = vertex.custom_jobs.items.pop(f"{parent}/customJobs/{id}")
        deleted.append(job.state.name)
        return operation(f"{parent}/customJobs/{id}", empty_pb2.Empty())

    vertex.route("DELETE", "{parent}/customJobs/{id}", delete)
    bucket = mock.Mock(**{"list_blobs.return_value": [blob := mock.Mock()]})
    clock = mock.Mock(**{"monotonic.return_value": 0.0, "sleep.side_effect": KeyboardInterrupt})
    with mock.patch.object(program, "time", clock), pytest.raises(KeyboardInterrupt):
        program.prove(REQUESTS, bucket, "prove-000000")
    assert deleted == ["JOB_STATE_CANCELLED"] * len(REQUESTS) and blob.delete.call_count == 1
    assert "left behind" not in capsys.readouterr().err


@pytest.mark.cloud
def test_every_check_has_answer_here(cloud):  # noqa: F811
    printed = cloud.printed(f"-m tools.prove_cloud {FLAGS} --yes")
    answers = dict(re.findall(r"^(\d+)\. .*?: (.*)$", printed, re.MULTILINE))
    assert answers["2"].endswith("lone/workerpool0-0-0 all can be imported")
    assert "failed" in answers["3"] and "-0-1" not in answers["3"]
    assert {f"restart-all/workerpool{i}-0-1" for i in (0, 1)} <= {*answers["4"].split()}
    assert "'after_s': 0, 'renamed': True" in answers["7"] and "cancelled" in answers["10"]
    assert "'told_429': 0" in answers["11"] and answers["12"] == "not looked at"
    assert not list(cloud.files.parent.glob("demo/prove-*/**/*.json"))


if __name__ == "__main__":
    GOLDEN.write_text(program.shown(REQUESTS))

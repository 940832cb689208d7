"""The proving jobs: their requests, the list they fill in, and one run on the cloud of this machine.

`python -m tests.prove_cloud.test_prove_cloud` writes the golden requests anew; look at `git diff` before they are committed.
"""

import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

import pytest
from google.auth.credentials import AnonymousCredentials
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from tests.prove_cloud import __main__ as program
from tests.prove_cloud.bodies import most_usd, requests, shown
from tests.prove_cloud.findings import CHECKS, Seen, filled

GOLDEN = pathlib.Path(__file__).with_name("bodies.json")
IMAGE = f"us-docker.pkg.dev/demo-project/training/image@sha256:{'0' * 64}"
FLAGS = ["--project", "demo-project", "--bucket", "gs://demo", "--image", IMAGE]
LIST = (pathlib.Path(__file__).parents[2] / "docs" / "CLOUD.md").read_text(encoding="utf-8")


def made() -> str:
    return shown(requests("prove-000000", program.parser().parse_args([*FLAGS, "--service-account", "a@b.c", "--gpu"])))


def test_the_requests_are_those_that_were_reviewed():
    assert made() == GOLDEN.read_text()


def test_all_of_it_costs_less_than_a_dollar():
    assert (
        0.5
        < most_usd(program.parser().parse_args(FLAGS))
        < most_usd(program.parser().parse_args([*FLAGS, "--gpu"]))
        < 1
    )


def test_nothing_is_sent_without_a_yes(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["prove", *FLAGS])
    monkeypatch.setattr("builtins.input", lambda _: "")
    monkeypatch.setattr(program, "_Cloud", lambda _: pytest.fail("a client was made"))
    assert program.main() == 1 and re.search(r"at most 0\.\d\d USD", capsys.readouterr().out)


def test_each_item_of_the_list_is_answered_or_named_as_one_that_is_not():
    nothing = Seen(states={"lone": "failed quota"}, notes={"lone": {}}, executed=0, location="")
    text = filled(LIST, nothing)
    assert len(re.findall(r"^\d+\. ", text, re.MULTILINE)) == text.count("**Found: ") == 12
    assert set(re.findall(r"Shown by `(\w+)`", text)) == CHECKS.keys()
    assert "no, nothing came from lone (failed quota)" in text and text.count("not looked at") == 1
    assert text.count("not shown, jobs: lone failed quota") >= 8


def test_what_was_made_is_cancelled_and_deleted(vertex, capsys):
    deleted = []

    def delete(request, parent, id):
        deleted.append(vertex.custom_jobs.items.pop(f"{parent}/customJobs/{id}").state.name)
        operation = operations_pb2.Operation(name=f"{parent}/operations/1", done=True)
        operation.response.Pack(empty_pb2.Empty())
        return operation

    vertex.route("DELETE", "{parent}/customJobs/{id}", delete)
    options = {"client_options": {"api_endpoint": vertex.url}, "credentials": AnonymousCredentials()}
    args = program.parser().parse_args(FLAGS)
    cloud = program._Cloud(args, transport="rest", **options)
    cloud.bucket = mock.Mock(**{"list_blobs.return_value": [blob := mock.Mock()]})
    for name in ("lone", "restart-all"):
        assert cloud.create(name, requests("prove-000000", args)[name], "prove-000000") == ""
    cloud.clean("prove-000000/")
    assert deleted == ["JOB_STATE_CANCELLED"] * 2 and blob.delete.call_count == 1
    assert capsys.readouterr().err == ""


@pytest.mark.cloud
def test_on_the_cloud_of_this_machine_every_check_has_an_answer_and_nothing_stays(tmp_path):
    if "LOOPBACK_CLOUD" not in os.environ:
        pytest.skip("runs inside the loopback cloud only: make test-cloud")
    output = tmp_path / "proved.md"
    command = [sys.executable, "-m", "tests.prove_cloud", *FLAGS, "--yes", "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"Shown by `(\w+)`(?:.|\n)*?\*\*Found: (.*)\.\*\*", output.read_text()))
    assert found["allowed"].startswith("yes") and found["image"].startswith("yes"), found
    assert found["ends_for_good"].startswith("yes, attempts: 1, failed")
    assert "workerpool0-0 2 attempts, workerpool1-0 2 attempts, succeeded" in found["tried_again"]
    assert found["comes_back"].startswith("the same name and the same machine")
    assert (
        found["pipeline"]
        == "the second run took the step from the cache; a step that fails once, with set_retry: succeeded"
    )
    assert "0 of 400 told 429" in found["store"] and "accepted" in found["large_request"]
    assert "not shown" in found["gpus"] and "not shown" not in "".join(found[name] for name in found if name != "gpus")
    objects = pathlib.Path(os.environ["LOOPBACK_CLOUD"], "buckets", "demo")
    assert not list(objects.glob("prove-*/**/*.json"))


if __name__ == "__main__":
    GOLDEN.write_text(made())

"""`python -m tests.prove_cloud.test_prove_cloud` writes the golden requests anew; look at `git diff` before a commit."""

import os
import pathlib
import re
import subprocess
import sys
from unittest import mock

import pytest
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from tests.prove_cloud import __main__ as program

GOLDEN = pathlib.Path(__file__).with_name("bodies.json")
IMAGE = f"us-docker.pkg.dev/demo-project/training/image@sha256:{'0' * 64}"
FLAGS = ["--project", "demo-project", "--bucket", "gs://demo", "--image", IMAGE]
ARGS = program.parser().parse_args([*FLAGS, "--service-account", "a@b.c", "--gpu"])
REQUESTS = program.requests("gs://demo/prove-000000", ARGS)


def test_the_requests_are_those_that_were_reviewed():
    assert program.shown(REQUESTS) == GOLDEN.read_text()


def test_nothing_is_sent_without_a_yes(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["prove", *FLAGS])
    monkeypatch.setattr("builtins.input", lambda _: "")
    monkeypatch.setattr(program, "prove", lambda *_: pytest.fail("it was sent"))
    assert program.main() == 1 and "at most 1.25 machine-hours" in capsys.readouterr().out


def test_the_table_has_every_item_of_the_list_that_it_can_show():
    items = re.findall(
        r"^(\d+)\. (.*(?:\n {3,}.*)*)", pathlib.Path("docs/CLOUD.md").read_text(), re.MULTILINE
    )
    assert [number for number, *_ in program.SHOWN] == [
        int(n) for n, item in items if "Shown by nothing" not in item
    ]


def test_what_was_made_is_cancelled_and_deleted(vertex, capsys):
    deleted = []

    def delete(request, parent, id):
        deleted.append(vertex.custom_jobs.items.pop(f"{parent}/customJobs/{id}").state.name)
        operation = operations_pb2.Operation(name=f"{parent}/operations/1", done=True)
        operation.response.Pack(empty_pb2.Empty())
        return operation

    vertex.route("DELETE", "{parent}/customJobs/{id}", delete)
    bucket = mock.Mock(**{"list_blobs.return_value": [blob := mock.Mock()]})
    with (
        mock.patch.object(program, "_wait", side_effect=[KeyboardInterrupt, *REQUESTS]),
        pytest.raises(KeyboardInterrupt),
    ):
        program.prove(REQUESTS, bucket, "prove-000000")
    assert deleted == ["JOB_STATE_CANCELLED"] * len(REQUESTS) and blob.delete.call_count == 1
    assert "left behind" not in capsys.readouterr().err


@pytest.mark.cloud
def test_on_the_cloud_of_this_machine_every_check_has_an_answer_and_nothing_stays():
    if "LOOPBACK_CLOUD" not in os.environ:
        pytest.skip("runs inside the loopback cloud only: make test-cloud")
    command = [sys.executable, "-m", "tests.prove_cloud", *FLAGS, "--yes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"^(\d+)\. .*?: (.*)$", done.stdout, re.MULTILINE))
    assert (
        re.search(r"lone/workerpool0-0-0 all can be imported$", found["2"])
        and "failed" in found["3"]
        and "-0-1" not in found["3"]
    )
    assert {f"restart-all/workerpool{i}-0-1" for i in (0, 1)} <= set(
        found["4"].split()
    ) and "'after_s': 0, 'renamed': True" in found["7"]
    assert (
        "'told_429': 0" in found["11"]
        and "cancelled" in found["10"]
        and found["12"] == "not looked at"
    )
    objects = pathlib.Path(os.environ["LOOPBACK_CLOUD"], "buckets", "demo")
    assert not list(objects.glob("prove-*/**/*.json"))


if __name__ == "__main__":
    GOLDEN.write_text(program.shown(REQUESTS))

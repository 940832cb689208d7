"""Cleanup of a project: Google's clients over states of an in-process Vertex AI and store."""

import datetime
import io
import json
import os
import sys

import pytest
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from project_states import BUCKET, NOW, OURS, PARENT, job, version

from components.cleanup.__main__ import main
from components.register.registry import marked
from tests.cleanup.conftest import files

FLAGS = f"--project demo-project --location us-central1 --bucket {BUCKET}"
JOB, FOLDER = f"{PARENT}/customJobs/training-1", f"models/m/{0:016x}"
CHECKPOINT = "runs/training-1/job/checkpoints/ckpt-1"
FILES = f"""runs/77/training-1/convert/output/manifest.json
runs/77/training-1/notes.txt
runs/77/training-10/x.tmp
runs/x/job/a.tmp
{CHECKPOINT}
{FOLDER}/1/saved_model.pb
{FOLDER}/version.json
models/m/v3/version.json
models/bert/7/saved_model.pb"""


@pytest.fixture
def state(vertex, bucket):
    """Returns jobs and versions of the cloud, by kind and name, and the files of the bucket."""

    def read():
        jobs = vertex.custom_jobs.items.items()
        things = {name for name, job in jobs if job.state.name != "JOB_STATE_CANCELLED"}
        for versions in vertex.models.versions.values():
            things |= {f"{each.labels['name']} {each.version_id}" for each in versions}
        return things, files(bucket)

    return read


@pytest.fixture
def project(vertex, bucket, state):
    """A run that has ended, with a live job, a dataset and two versions, and things of others."""
    labels = OURS | {"run": "training-1"}
    for name in FILES.split():
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).write_text(json.dumps(marked(f"{BUCKET}/{FOLDER}")))
        os.utime(bucket / name, (0, 0))
    run = job("pipelineJobs/training-1", "training-1", labels, False)
    vertex.pipeline_jobs.items = {run.name: run}
    ours = job("customJobs/training-1", "training-1", labels, True)
    foreign = job("customJobs/7", "training-1", labels | {"managed_by": "others"}, True)
    vertex.custom_jobs.items = {job.name: job for job in (ours, foreign)}
    newer = version("m", 2, OURS, f"{BUCKET}/models/m/{1:016x}", aliases=("default",))
    vertex.models.versions = {newer.name: [version("m", 1, OURS, f"{BUCKET}/{FOLDER}"), newer]}
    return state()


@pytest.fixture
def answer(monkeypatch):
    """Types an answer into a terminal."""

    def type_line(text):
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{text}\n"))
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)

    return type_line


def clean(flags):
    assert main(f"{FLAGS} {flags}".split()) == 0


def test_deletion_needs_agreement(project, state, answer, refused, capsys):
    line = refused(main, *FLAGS.split(), "--delete")
    assert "nobody can be asked here whether to delete all of this; add --yes" in line
    answer("no")
    clean("--delete")
    assert state() == project
    answer("y")
    clean("--delete")
    assert "deleted 1 items" in capsys.readouterr().out and project[0] - state()[0] == {JOB}


def test_needed_by_agreement_stays(project, state, vertex, answer, monkeypatch):
    """Things that are in use again when the question is answered are not deleted."""

    def agree(_):
        for run in vertex.pipeline_jobs.items.values():
            run.state = "PIPELINE_STATE_RUNNING"  # It was submitted again.
        vertex.models.versions[f"{PARENT}/models/m-m"][0].version_aliases = ["champion"]
        return "y"

    answer("y")
    monkeypatch.setattr("builtins.input", agree)
    clean("--keep-versions 1 --delete")
    assert state()[0] == project[0]


def test_listed_things_go_into_journal(project, state, bucket, capsys):
    """Nothing of others goes, and no file of a run before its live job is cancelled."""
    clean("--keep-versions 1")
    listed = capsys.readouterr().out
    assert all(name in listed for name in (JOB, "m 1", "2 items")) and state() == project
    clean("--keep-versions 1 --delete --yes")
    things, left = state()
    assert project[0] - things == {JOB, "m 1"}
    assert project[1] - left == {f"{FOLDER}/1/saved_model.pb", f"{FOLDER}/version.json"}
    (journal,) = left - project[1]
    assert journal.startswith("runs/cleanup/")
    lines = [json.loads(line) for line in (bucket / journal).read_text().splitlines()]
    assert [(line["kind"], line["error"]) for line in lines] == [("job", ""), ("version", "")]
    clean("--delete --yes")
    assert left - state()[1] == {CHECKPOINT}


def test_failure_leaves_others_to_go(project, state, vertex, refused):
    def refuse(request):
        raise exceptions.PermissionDenied("not you")

    vertex.route("POST", "{parent}/customJobs/{id}:cancel", refuse)
    line = refused(main, *FLAGS.split(), "--delete", "--yes", "--keep-versions", "1")
    assert f"1 items are left: {JOB}: " in line and "not you" in line
    assert project[0] - state()[0] == {"m 1"}


def test_endpoints_without_requests_go(vertex, bucket):
    idle = {"create_time": NOW - datetime.timedelta(days=3), "labels": OURS}
    for name, facts in (
        ("idle", {}),
        ("busy", {"deployed_models": [{"id": "5", "model": "m"}], "traffic_split": {"5": 100}}),
        ("young", {"create_time": NOW}),
        ("foreign", {"labels": {}}),
    ):
        endpoint = v1.Endpoint({"name": f"{PARENT}/endpoints/{name}", **idle, **facts})
        vertex.endpoints.items[endpoint.name] = endpoint
    clean("--delete --yes")
    names = [name.rpartition("/")[2] for name in vertex.endpoints.items]
    assert names == ["busy", "young", "foreign"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--project p", "or --project, --location and --bucket"),
        (f"{FLAGS[:-9]}demo", "--bucket demo: give gs://BUCKET"),
        (FLAGS.replace("demo-project", "other"), "vertex://other/us-central1: 403"),
    ],
)
def test_wrong_flags_are_error(vertex, bucket, refused, flags, message):
    assert message in refused(main, *flags.split())

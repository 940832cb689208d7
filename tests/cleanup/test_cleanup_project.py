"""What cleanup does in a project: Google's clients over states of an in-process Vertex AI and store."""

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

FLAGS = ["--project", "demo-project", "--location", "us-central1", "--bucket", BUCKET]


def there(vertex, bucket):
    """Jobs and versions that are in the cloud, by kind and name, and the files of the bucket."""
    live = [name for name, job in vertex.custom_jobs.items.items() if job.state.name != "JOB_STATE_CANCELLED"]
    numbers = {
        ("version", f"{name.partition('/models/m-')[2]} {v.version_id}")
        for name, versions in vertex.models.versions.items()
        for v in versions
    }
    files = {str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file()}
    return {("job", name) for name in live} | numbers, files


@pytest.fixture
def project(vertex, bucket):
    """One run that has ended: a job that still runs, a dataset that nothing was trained on, two versions."""
    labels, folder = OURS | {"run": "training-1"}, f"{BUCKET}/models/m/{0:016x}"
    newer = version("m", 2, OURS, folder.replace("00", "11"), aliases=("default",))
    files = {
        "runs/77/training-1/convert/output/manifest.json": {"fingerprint": "d"},
        "runs/77/training-1/convert/output/train-00000-of-00001.tfrecord": {},
        f"{folder.removeprefix(f'{BUCKET}/')}/1/saved_model.pb": {},
        f"{folder.removeprefix(f'{BUCKET}/')}/version.json": marked(folder),
        "models/bert/7/saved_model.pb": {},  # of nobody that we know
    }
    for name, content in files.items():
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).write_text(json.dumps(content))
        os.utime(bucket / name, (0, 0))
    for collection, made in (
        (vertex.pipeline_jobs, job("pipelineJobs/training-1", "training-1", labels, False)),
        (vertex.custom_jobs, job("customJobs/training-1", "training-1", labels, True)),
    ):
        collection.items = {made.name: made}
    vertex.models.versions = {newer.name: [version("m", 1, OURS, folder), newer]}


def answered(monkeypatch, answer):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{answer}\n"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)


def test_nothing_goes_before_somebody_has_agreed(project, vertex, bucket, monkeypatch, refused, capsys):
    before = there(vertex, bucket)
    assert "nobody can be asked here whether to delete all of this; add --yes" in refused(main, *FLAGS, "--delete")
    answered(monkeypatch, "no")
    assert main([*FLAGS, "--delete"]) == 0 and there(vertex, bucket) == before
    answered(monkeypatch, "y")
    assert main([*FLAGS, "--delete"]) == 0
    assert "deleted 1 items" in capsys.readouterr().out and before[0] - there(vertex, bucket)[0] == {
        ("job", f"{PARENT}/customJobs/training-1")
    }


def test_what_is_needed_by_the_time_that_somebody_agrees_stays(project, vertex, bucket, monkeypatch):
    before = there(vertex, bucket)

    def agrees(_):
        for name in vertex.pipeline_jobs.items:
            vertex.pipeline_jobs.items[name].state = "PIPELINE_STATE_RUNNING"  # it was submitted again
        vertex.models.versions[f"{PARENT}/models/m-m"][0].version_aliases = ["champion"]
        return "y"

    answered(monkeypatch, "y")
    monkeypatch.setattr("builtins.input", agrees)
    assert main([*FLAGS, "--keep-versions", "1", "--delete"]) == 0
    assert there(vertex, bucket)[0] == before[0]


def test_what_is_listed_goes_and_is_noted(project, vertex, bucket, capsys):
    flags, before = [*FLAGS, "--keep-versions", "1"], there(vertex, bucket)
    assert main(flags) == 0 and there(vertex, bucket) == before
    listed = capsys.readouterr().out
    assert all(name in listed for name in (f"{PARENT}/customJobs/training-1", "m 1", "2 items"))
    assert main([*flags, "--delete", "--yes"]) == 0
    things, files = there(vertex, bucket)
    assert before[0] - things == {("job", f"{PARENT}/customJobs/training-1"), ("version", "m 1")}
    assert before[1] - files == {f"models/m/{0:016x}/{name}" for name in ("1/saved_model.pb", "version.json")}
    [journal] = files - before[1]
    assert journal.startswith("runs/cleanup/")
    lines = [json.loads(line) for line in (bucket / journal).read_text().splitlines()]
    assert [(line["kind"], line["error"]) for line in lines] == [("job", ""), ("version", "")]


def test_foreign_things_beside_ours_stay(project, vertex, bucket):
    labels = {"managed_by": "others", "run": "training-1"}
    jobs, run = vertex.custom_jobs.items, vertex.pipeline_jobs.items[f"{PARENT}/pipelineJobs/training-1"]
    theirs = job("customJobs/7", "training-1", labels, True)
    jobs[theirs.name] = theirs
    foreign = {"runs/x/job/a.tmp", "models/m/v3/version.json", "models/bert/7/saved_model.pb"}
    foreign |= {f"runs/77/training-1{name}" for name in ("/notes.txt", "/convert/output/manifest.json", "0/x.tmp")}
    for name in (*foreign, "runs/training-1/job/checkpoints/ckpt-1"):
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).write_text("{}")
        os.utime(bucket / name, (0, 0))
    before = str(theirs), str(run)
    for _ in range(2):  # no file of the run goes as long as its job runs
        assert main([*FLAGS, "--keep-versions", "1", "--delete", "--yes"]) == 0
    assert (str(theirs), str(run)) == before
    left = {name for name in there(vertex, bucket)[1] if not name.startswith("runs/cleanup/")}
    assert left == foreign | {"runs/77/training-1/convert/output/train-00000-of-00001.tfrecord"}


def test_endpoints_without_requests_go(vertex, bucket, capsys):
    made = {"create_time": NOW - datetime.timedelta(days=3), "labels": OURS}
    busy = {"deployed_models": [{"id": "5", "model": "m"}], "traffic_split": {"5": 100}}
    for name, facts in (
        ("idle", made),
        ("busy", {**made, **busy}),
        ("young", {**made, "create_time": NOW}),
        ("foreign", {**made, "labels": {}}),
    ):
        endpoint = v1.Endpoint({"name": f"{PARENT}/endpoints/{name}", "display_name": name, **facts})
        vertex.endpoints.items[endpoint.name] = endpoint
    assert main([*FLAGS, "--delete", "--yes"]) == 0
    assert f"made 3 days ago, it gets no requests  {PARENT}/endpoints/idle\n" in capsys.readouterr().out
    assert [endpoint.display_name for endpoint in vertex.endpoints.items.values()] == ["busy", "young", "foreign"]


def test_failure_does_not_save_others(project, vertex, bucket, refused):
    def refuse(request, parent, id):
        raise exceptions.PermissionDenied("not you")

    vertex.route("POST", "{parent}/customJobs/{id}:cancel", refuse)
    line = refused(main, *FLAGS, "--delete", "--yes", "--keep-versions", "1")
    assert f"1 items are left: {PARENT}/customJobs/training-1: " in line and "not you" in line
    assert ("version", "m 1") not in there(vertex, bucket)[0]


def test_foreign_default_version_changes_nothing(project, vertex, bucket):
    first, second = versions = vertex.models.versions[f"{PARENT}/models/m-m"]
    second.version_aliases = []
    versions.append(version("m", 3, {}, f"{BUCKET}/theirs", aliases=("default",)))
    first.labels = {}  # in the registry still, so its files are needed
    files = there(vertex, bucket)[1]
    assert main([*FLAGS, "--delete", "--yes"]) == 0
    assert files <= there(vertex, bucket)[1]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--project", "p", "--delete"], "or --project, --location and --bucket"),
        (["--delete"], "give --run DIRECTORY"),
        ([*FLAGS[:-1], "demo"], "--bucket demo: give gs://BUCKET"),
        ([*FLAGS[:-1], "gs://nobodys"], "gs://nobodys/runs cannot be used: 404"),
        (["--project", "other", *FLAGS[2:]], "vertex://other/us-central1: 403"),
    ],
)
def test_what_cannot_be_meant_is_refused(vertex, bucket, refused, flags, message):
    assert message in refused(main, *flags)

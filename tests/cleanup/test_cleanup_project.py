"""What cleanup does in a project: Google's clients over states of an in-process Vertex AI and store."""

import io
import json
import os
import sys

import pytest
from project_states import BUCKET, OURS, PARENT, REGISTRY, job, schedule, version

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
    data = "runs/77/training-1/convert/output/manifest.json"
    files = {
        data: {"fingerprint": "d"},
        "runs/77/training-1/convert/output/train-00000-of-00001.tfrecord": {},
        f"{folder.removeprefix(f'{BUCKET}/')}/1/saved_model.pb": {},
        f"{folder.removeprefix(f'{BUCKET}/')}/version.json": {"registry": REGISTRY} | marked(folder),
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
    vertex.lineage.made = {f"{BUCKET}/{data.removesuffix('/manifest.json')}": "training-1"}


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


def test_foreign_things_beside_ours_stay(project, vertex, bucket, capsys):
    labels = {"managed_by": "others", "run": "training-1"}
    jobs, run = vertex.custom_jobs.items, vertex.pipeline_jobs.items[f"{PARENT}/pipelineJobs/training-1"]
    theirs = job("customJobs/7", "training-1", labels, True)
    jobs[theirs.name] = theirs
    for number, whose in (("7", labels), ("8", OURS)):
        vertex.schedules.items[number] = schedule(number, whose)
    foreign = ["runs/x/job/a.tmp", "runs/77/training-10/convert/output/manifest.json", "models/m/v3/version.json"]
    foreign += [f"runs/77/training-1/{name}" for name in ("notes.txt", "convert/output/notes.txt", "x/a.tfrecord")]
    unfinished = "runs/training-1/job/checkpoints/ckpt-1"  # of ours, only shown
    for name in (*foreign, unfinished):
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).write_text("{}")
        os.utime(bucket / name, (0, 0))
    before = str(theirs), str(run), str(vertex.schedules.items)
    for _ in range(2):  # no dataset goes as long as the job of ours runs
        assert main([*FLAGS, "--keep-versions", "1", "--delete", "--yes"]) == 0
    assert (str(theirs), str(run), str(vertex.schedules.items)) == before
    left = {name for name in there(vertex, bucket)[1] if not name.startswith("runs/cleanup/")}
    assert left == {*foreign, unfinished, "models/bert/7/saved_model.pb"}
    shown = capsys.readouterr().out
    assert (
        all(text in shown for text in (f"{BUCKET}/{unfinished[:-6]}", "submit.py --cancel 8"))
        and "--cancel 7" not in shown
    )


def test_foreign_default_version_changes_nothing(project, vertex, bucket):
    first, second = versions = vertex.models.versions[f"{PARENT}/models/m-m"]
    second.version_aliases = []
    versions.append(version("m", 3, {}, f"{BUCKET}/theirs", aliases=("default",)))
    first.labels = {}  # in the registry still, so its files are needed
    files = there(vertex, bucket)[1]
    assert main([*FLAGS, "--delete", "--yes"]) == 0
    assert files <= there(vertex, bucket)[1]


def test_jobs_anywhere_keep_their_datasets(project, bucket, capsys):
    main([*FLAGS, "--delete", "--yes"])  # the job, for the sake of which no dataset goes
    record = bucket / "jobs/mine/job.json"
    record.parent.mkdir(parents=True)
    for content in ('{"identity": {"fingerprint": "d"}}', "["):
        record.write_text(content)
        capsys.readouterr()
        assert main(FLAGS) == 0 and capsys.readouterr().out.startswith("0 items")
    record.write_text('{"of": "another program"}')
    assert main(FLAGS) == 0 and "runs/77/training-1/convert/output/" in capsys.readouterr().out


def test_the_cache_forgets_a_dataset_before_it_goes_or_it_stays(project, vertex, bucket, refused):
    main([*FLAGS, "--delete", "--yes"])  # the job, for the sake of which no dataset goes
    data = bucket / "runs/77/training-1/convert/output"
    vertex.route("DELETE", "{parent}/metadataStores/default/executions/{id}", refuse)
    line = refused(main, *FLAGS, "--delete", "--yes", "--keep-versions", "1")
    assert "1 items are left: gs://demo/runs/77/training-1/convert/output/: " in line and "not you" in line
    assert data.exists()
    assert ("version", "m 1") not in there(vertex, bucket)[0]  # one that fails does not save the others
    vertex.route("DELETE", "{parent}/metadataStores/default/executions/{id}", vertex.lineage.forget)
    assert main([*FLAGS, "--delete", "--yes"]) == 0
    assert not data.exists() and not vertex.lineage.made


def test_what_cannot_be_understood_is_no_reason_to_delete(project, bucket, refused, capsys):
    main([*FLAGS, "--delete", "--yes"])
    data, job = bucket / "runs/77/training-1/convert/output/manifest.json", bucket / "runs/training-2/job/job.json"
    data.write_text("[1")
    capsys.readouterr()
    assert main(FLAGS) == 0 and capsys.readouterr().out.startswith("0 items")
    job.parent.mkdir(parents=True)
    job.write_text("[")
    assert "runs/training-2/job/job.json cannot be used" in refused(main, *FLAGS)


@pytest.mark.parametrize("content", ["[", "[1]", '{"facts": "none"}'])
def test_foreign_version_file_stops_nothing(project, bucket, refused, capsys, content):
    foreign, own = (bucket / folder / "version.json" for folder in ("models/bert/7", f"models/m/{0:016x}"))
    foreign.write_text(content)
    assert main(FLAGS) == 0
    assert capsys.readouterr().err.count("models/bert/7/version.json is no record") == 1
    foreign.rename(own)
    assert f"models/m/{0:016x}/version.json cannot be used" in refused(main, *FLAGS)


def refuse(request, parent, id):
    from google.api_core import exceptions

    raise exceptions.PermissionDenied("not you")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--project", "p", "--delete"], "--project, --location and --bucket go together"),
        (["--delete"], "give --run DIRECTORY"),
        ([*FLAGS[:-1], "demo"], "--bucket demo: give gs://BUCKET"),
        ([*FLAGS[:-1], "gs://nobodys"], "gs://nobodys/runs cannot be used: 404"),
        (["--project", "other", *FLAGS[2:]], "vertex://other/us-central1: 403"),
    ],
)
def test_what_cannot_be_meant_is_refused(vertex, bucket, refused, flags, message):
    assert message in refused(main, *flags)

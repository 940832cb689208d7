"""What cleanup does in a project: Google's clients over states of an in-process Vertex AI and store."""

import contextlib
import io
import itertools
import json
import os
import shutil
import sys

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from project_states import BUCKET, NOW, OLD, OURS, PARENT, REGISTRY, job, projects, version

from components.cleanup.__main__ import main
from components.cleanup.project_state import File, ProjectState

FLAGS = ["--project", "demo-project", "--location", "us-central1", "--bucket", BUCKET]

_seconds = itertools.count()


def build(state, vertex, bucket):
    """Makes of the cloud what a state says."""
    shutil.rmtree(bucket, ignore_errors=True)
    for name, file in state.files.items():
        of, registry = state.fingerprints.get(name, ""), state.registries.get(name)
        content = {"facts": {"fingerprint": of, "registry": registry}} if registry else {"fingerprint": of}
        content = {"identity": content} if name.endswith("/job.json") else content
        (bucket / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / name).write_text(json.dumps(content) if name.endswith(".json") else "0123456789")
        os.utime(bucket / name, (file.updated.timestamp() - next(_seconds),) * 2)  # another generation in every state
    kinds = {"pipelines": vertex.pipeline_jobs, "custom_jobs": vertex.custom_jobs}
    for kind, collection in kinds.items():
        collection.items = {each.name: type(each)(each) for each in getattr(state, kind)}
    vertex.models.versions, vertex.lineage.made = {}, {}
    for each in state.versions:
        vertex.models.versions.setdefault(each.name, []).append(type(each)(each))
    for name in state.files:
        if name.endswith("/manifest.json"):
            vertex.lineage.made[f"{BUCKET}/{name.removesuffix('/manifest.json')}"] = name.split("/")[2]


def there(vertex, bucket):
    """All that is in the cloud: kind and name, and the files of the bucket."""
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
    labels, folder, at = OURS | {"run": "training-1"}, f"{BUCKET}/models/m/{0:016x}", File(bytes=10, updated=OLD)
    newer = version("m", 2, OURS, folder.replace("00", "11"), aliases=("default",))
    data = "runs/77/training-1/convert/output/manifest.json"
    state = ProjectState(
        registry=REGISTRY,
        bucket=BUCKET,
        now=NOW,
        pipelines=(job("pipelineJobs/training-1", "training-1", labels, False),),
        custom_jobs=(job("customJobs/training-1", "training-1", labels, True),),
        versions=(version("m", 1, OURS, folder), newer),
        files={data: at, f"{folder.removeprefix(BUCKET + '/')}/1/saved_model.pb": at},
        fingerprints={data: "d"},
    )
    build(state, vertex, bucket)


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


def test_the_cache_forgets_a_dataset_before_it_goes_or_it_stays(project, vertex, bucket, refused):
    main([*FLAGS, "--delete", "--yes"])  # the job, for the sake of which no dataset goes
    data = bucket / "runs/77/training-1/convert/output/manifest.json"
    vertex.route("DELETE", "{parent}/metadataStores/default/executions/{id}", refuse)
    line = refused(main, *FLAGS, "--delete", "--yes", "--keep-versions", "1")
    assert "1 items are left: gs://demo/runs/77/training-1/convert/output/: " in line and "not you" in line
    assert (
        data.exists() and ("version", "m 1") not in there(vertex, bucket)[0]
    )  # one that fails does not save the others
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


def refuse(request, parent, id):
    from google.api_core import exceptions

    raise exceptions.PermissionDenied("not you")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--project", "p", "--delete"], "--project, --location and --bucket go together"),
        (["--yes"], "go together"),
        (["--delete"], "give --run DIRECTORY"),
        ([*FLAGS[:-1], "demo"], "--bucket demo: give gs://BUCKET"),
        ([*FLAGS[:-1], "gs://demo/runs"], "--bucket gs://demo/runs: give gs://BUCKET"),
        ([*FLAGS[:-1], "gs://nobodys"], "gs://nobodys cannot be used: 404"),
        (["--project", "other", *FLAGS[2:]], "vertex://other/us-central1: 403"),
        ([*FLAGS, "--keep-versions", "0"], "a whole number of at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(vertex, bucket, refused, flags, message):
    assert message in refused(main, *flags)


# To make a failing state small would take an hour.
@pytest.mark.slow
@settings(max_examples=20, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(projects())
def test_all_that_is_left_over_goes_from_the_project_and_everything_else_stays(vertex, bucket, project):
    state, keep, goes = project
    build(state, vertex, bucket)
    (things, files), made = there(vertex, bucket), dict(vertex.lineage.made)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main([*FLAGS, "--keep-versions", str(keep)]) == 0
        assert there(vertex, bucket) == (things, files)
        assert main([*FLAGS, "--keep-versions", str(keep), "--delete", "--yes"]) == 0
    listed = said.getvalue()
    assert all(name in listed for _, name in goes) and listed.count(f"{len(goes)} items") == 2
    left, remaining = there(vertex, bucket)
    assert things - left == {which for which in goes if which[0] in ("job", "version")}
    journals = {name for name in remaining if name.startswith("runs/cleanup/")}
    gone = files - remaining
    assert not [each for each in made if each not in vertex.lineage.made and ("dataset", f"{each}/") not in goes]
    if goes:
        [done] = [name for name in journals if name.endswith("-done.jsonl")]
        lines = [json.loads(line) for line in (bucket / done).read_text().splitlines()]
        assert {(line["kind"], line["name"]): line["run"] for line in lines} == goes
        assert gone == {file for line in lines for file in line["files"]} and not any(line["error"] for line in lines)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        main([*FLAGS, "--keep-versions", str(keep)])
    # What only stayed for the sake of what has gone may go now; of what was told nothing is left.
    assert not [name for _, name in goes if f" {name}\n" in said.getvalue()]

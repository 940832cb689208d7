import dataclasses
import datetime

from hypothesis import given, settings
from hypothesis import strategies as st
from project_states import BUCKET, NOW, OURS, job, projects, schedule, stored_file, version, with_foreign_things

from components.cleanup.project import ProjectState, leftovers


@settings(max_examples=settings.default.max_examples * 4)
@given(projects())
def test_all_of_ours_that_nobody_needs_goes_and_nothing_else(project):
    state, keep, goes = project
    found = [each for each in leftovers(state, keep_versions=keep) if not each.unless]
    assert {(each.kind, each.name): each.run for each in found} == goes
    assert len(found) == len(goes)
    gone = [name for each in found for name in each.files]
    assert len(gone) == len(set(gone))
    assert all(name.startswith(("runs/", "models/")) for name in gone)
    # Models of jobs and of versions that stay, pages, and what another pipeline keeps there.
    going = {each.name for each in found if each.kind == "version"}
    stay = [v.artifact_uri[10:] for v in state.versions if f"{v.labels['name']} {v.version_id}" not in going]
    assert not [name for name in gone if name.startswith(tuple(f"{folder}/" for folder in stay))]
    assert not [name for name in gone if "/job/model/" in name or name.endswith("report") or "/other/" in name]
    for run in {"training-0", "training-1"}:
        of_run = [each for each in leftovers(state, keep_versions=keep, run=run) if not each.unless]
        assert {(each.kind, each.name) for each in of_run} == {which for which, of in goes.items() if of == run}
    assert not [each for each in leftovers(state) if each.kind == "version"]


@given(projects(), st.data())
def test_foreign_things_change_nothing(project, data):
    """Whatever others have beside ours, the same goes, file by file."""
    state, keep, _ = project
    together = leftovers(data.draw(with_foreign_things(state)), keep_versions=keep)
    assert {each.name: each for each in together} == {each.name: each for each in leftovers(state, keep_versions=keep)}


def test_dataset_of_live_foreign_job_stays():
    folder = "runs/77/r/convert/output/"
    files = {f"{folder}manifest.json": stored_file(2), f"{folder}train-00000-of-00001.tfrecord": stored_file(2)}
    state = ProjectState(
        registry="",
        bucket=BUCKET,
        now=NOW,
        pipelines=(job("pipelineJobs/r", "r", OURS, False),),
        files=files,
        records={f"{folder}manifest.json": {"fingerprint": "d"}},
    )
    [found] = leftovers(state)
    assert found.kind == "dataset" and found.files[-1] == f"{folder}manifest.json"
    theirs = job("customJobs/1", "theirs", {}, True)
    theirs.job_spec.worker_pool_specs[0].container_spec.args = ["--data-dir", f"/gcs/demo/{folder}"]
    assert not leftovers(dataclasses.replace(state, custom_jobs=(theirs,)))


def test_version_without_record_keeps_files():
    versions = tuple(version("m", number, OURS, f"{BUCKET}/models/m/{number}") for number in (1, 2))
    files = {"models/m/1/1/saved_model.pb": stored_file(2)}
    state = ProjectState(registry="", bucket=BUCKET, now=NOW, versions=versions, files=files)
    [found] = leftovers(state, keep_versions=1)
    assert (found.name, found.files, found.cost) == ("m 1", (), "0.000 GB")


def test_unfinished_jobs_and_schedules_are_shown():
    files = {
        "runs/r/job/checkpoints/ckpt-1": stored_file(400, 150 * 10**9),
        "runs/r/job/journal.jsonl": stored_file(400),
    }
    about = {"registry": "", "bucket": BUCKET, "now": NOW, "files": files}
    pipelines = (job("pipelineJobs/r", "r", OURS, False),)
    state = ProjectState(pipelines=pipelines, schedules=(schedule("7", OURS), schedule("8", {})), **about)
    unfinished, scheduled = leftovers(state)
    assert (unfinished.cost, unfinished.files) == ("150.000 GB", ("runs/r/job/checkpoints/ckpt-1",))
    assert "400 days ago" in unfinished.why and "gcloud storage rm" in unfinished.unless
    assert (scheduled.cost, scheduled.why) == ("a run at 0 3 * * 1, 7 by now", "it is active")
    assert "--cancel 7" in scheduled.unless


def test_what_it_costs_is_told():
    left, pipeline = job("customJobs/1", "r", OURS, True), job("pipelineJobs/r", "r", OURS, False)
    left.create_time = NOW - datetime.timedelta(hours=2.5)
    state = ProjectState(registry="", bucket="gs://b", now=NOW, pipelines=(pipeline,), custom_jobs=(left,))
    [found] = leftovers(state)
    assert found.cost == "2 machines, 5.0 machine-hours at most by now"
    assert not leftovers(dataclasses.replace(state, pipelines=()))  # a job by itself, of no pipeline

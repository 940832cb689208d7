import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st
from project_states import BUCKET, NOW, OURS, job, projects, stored_file, with_foreign_things

from components.cleanup.project import ProjectState, leftovers


@settings(max_examples=settings.default.max_examples * 4)
@given(projects())
def test_exactly_unneeded_things_go(project):
    """All of ours that nobody needs goes, once, and nothing else."""
    state, keep, goes = project
    listed = leftovers(state, keep_versions=keep)
    assert {(each.kind, each.name): each.run for each in listed} == goes
    assert len(listed) == len(goes)
    gone = [name for each in listed for name in each.files]
    assert len(gone) == len(set(gone))
    assert all(name.startswith(("runs/", "models/")) for name in gone)
    # Models of jobs and of versions that stay, pages, and what another pipeline keeps there.
    going = {each.name for each in listed if each.kind == "version"}
    stay = [
        v.artifact_uri[10:]
        for v in state.versions
        if f"{v.labels['name']} {v.version_id}" not in going
    ]
    assert not [name for name in gone if name.startswith(tuple(f"{folder}/" for folder in stay))]
    assert not [
        name
        for name in gone
        if "/job/model/" in name or name.endswith("report") or "/other/" in name
    ]
    for run in {"training-0", "training-1"}:
        of_run = leftovers(state, keep_versions=keep, run=run)
        assert {(each.kind, each.name) for each in of_run} == {
            which for which, of in goes.items() if of == run
        }
    assert not [each for each in leftovers(state) if each.kind == "version"]


@given(projects(), st.data())
def test_foreign_things_change_nothing(project, data):
    """Things of others beside ours do not change what goes, file by file."""
    state, keep, _ = project
    together = leftovers(data.draw(with_foreign_things(state)), keep_versions=keep)
    assert {each.name: each for each in together} == {
        each.name: each for each in leftovers(state, keep_versions=keep)
    }


def test_checkpoints_of_unfinished_job_stay_month():
    pipelines = (job("pipelineJobs/r", "r", OURS, False),)
    names = "runs/r/job/checkpoints/ckpt-1", "runs/r/job/journal.jsonl"
    for days, goes in ((29, False), (31, True)):
        files = dict.fromkeys(names, stored_file(days, 150))
        listed = leftovers(ProjectState(bucket=BUCKET, now=NOW, pipelines=pipelines, files=files))
        assert [(each.num_bytes, each.files) for each in listed] == [(150, names[:1])] * goes


def test_job_of_no_pipeline_stays():
    live = job("customJobs/1", "r", OURS, True)
    state = ProjectState(bucket=BUCKET, now=NOW, jobs=(live,))
    assert not leftovers(state)
    ended = dataclasses.replace(state, pipelines=(job("pipelineJobs/r", "r", OURS, False),))
    assert [each.name for each in leftovers(ended)] == [live.name]

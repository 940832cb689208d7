import pytest
from hypothesis import given, settings
from project_states import BUCKET, NOW, OURS, job, projects

from components.cleanup.project import ProjectState, leftovers


@settings(max_examples=settings.default.max_examples * 4)
@given(projects())
@pytest.mark.long
def test_exactly_unneeded_things_go(project):
    """All of ours that nobody needs goes, once, and nothing else, whatever others have beside."""
    state, keep, goes = project
    listed = leftovers(state, keep_versions=keep)
    assert {(each.kind, each.name): each.run for each in listed} == goes
    assert len(listed) == len(goes)
    gone = [name for each in listed for name in each.files]
    assert len(gone) == len(set(gone))
    assert all(name.startswith(("runs/", "models/")) for name in gone)
    # Models of jobs and of versions that stay, pages, and what another pipeline keeps there.
    going = {each.name for each in listed if each.kind == "version"}
    stay = tuple(
        f"{version.artifact_uri.removeprefix(BUCKET)[1:]}/"
        for version in state.versions
        if f"{version.labels['name']} {version.version_id}" not in going
    )
    assert not [name for name in gone if name.startswith(stay) or name.endswith("report")]
    assert not [name for name in gone if "/job/model/" in name or "/other/" in name]
    for run in ("training-0", "training-1"):
        of_run = leftovers(state, keep_versions=keep, run=run)
        assert of_run == [each for each in listed if each.run == run]
    assert not [each for each in leftovers(state) if each.kind == "version"]


def test_job_of_no_pipeline_stays():
    live = job("customJobs/1", "r", OURS, True)
    assert not leftovers(ProjectState(bucket=BUCKET, now=NOW, jobs=(live,)))

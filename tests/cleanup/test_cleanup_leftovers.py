import dataclasses
import datetime

from hypothesis import given, settings
from project_states import NOW, OURS, job, projects

from components.cleanup.leftovers import leftovers
from components.cleanup.project_state import ProjectState


@settings(max_examples=settings.default.max_examples * 4)
@given(projects())
def test_all_of_ours_that_nobody_needs_goes_and_nothing_else(project):
    state, keep, goes = project
    found = leftovers(state, keep_versions=keep)
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
        assert {(e.kind, e.name) for e in leftovers(state, keep_versions=keep, run=run)} == {
            which for which, of in goes.items() if of == run
        }
    assert not [each for each in leftovers(state) if each.kind == "version"]


def test_what_it_costs_is_told():
    left, pipeline = job("customJobs/1", "r", OURS, True), job("pipelineJobs/r", "r", OURS, False)
    left.create_time = NOW - datetime.timedelta(hours=2.5)
    state = ProjectState(registry="", bucket="gs://b", now=NOW, pipelines=(pipeline,), custom_jobs=(left,))
    [found] = leftovers(state)
    assert found.cost == "2 machines, 5.0 machine-hours at most by now"
    assert not leftovers(dataclasses.replace(state, pipelines=()))  # a job by itself, of no pipeline

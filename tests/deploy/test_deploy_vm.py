"""A machine of one's own: how it is made, trains through preemptions, and then costs no more."""

import json
import re
import shutil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.google_cloud import MANAGED_BY
from tests.cloud.conftest import IMAGE

pytestmark = pytest.mark.long
STEPS = 12_000
IN = "--project demo-project --zone us-central1-a"
PLACE = f"{IN} --image {IMAGE}"
JOB = "--data-dir gs://demo/data --job-dir gs://demo/jobs/a"


def create(machine, more="", bucket="demo"):
    job = f"{JOB.replace('demo', bucket)} --train-steps {STEPS} --batch-size 32"
    job = f"--cluster clusters/local.yaml -- {job} --checkpoint-num-steps 0 --checkpoint-secs 1"
    return machine.run(f"create job-{bucket[-8:]} {PLACE} {more} -- {job}")


def deletions(cloud, machine):
    """Returns the answers to requests to delete the machine's group."""
    path = re.escape(f"compute/v1/{machine.metadata['created-by']}?")
    return re.findall(rf"DELETE compute.googleapis.com/{path}.* (\d+)\n", cloud.log())


@pytest.mark.cloud
def test_preemptions_cost_no_step(cloud, machine, container, digits):
    """Each machine goes on where the last one saved, and at the end the group is deleted once."""
    shutil.copytree(digits, cloud.files / "data")
    create(machine, bucket=cloud.bucket)
    job_dir, newest = cloud.files / "jobs" / "a", 0

    for loss in ("notice", "notice and power button", "nothing"):
        machine.boot(container)
        machine.says(f"from step {newest} to {STEPS}")
        cloud.until(lambda before=newest: cloud.steps(job_dir) > before)
        if loss == "nothing":
            machine.cut_power()
        else:
            machine.notice()
            if loss == "notice":
                machine.says("saved; the next machine goes on")
            machine.press_power()
            output = (machine.directory / "output").read_text()
            assert f"saved at step {cloud.steps(job_dir)}\n" in output
        newest = cloud.steps(job_dir)
    assert newest < STEPS and not deletions(cloud, machine)
    machine.boot(container)
    assert f"from step {newest} to {STEPS}" in machine.says("group is being deleted")

    assert json.loads((job_dir / "DONE.json").read_text())["step"] == STEPS
    assert deletions(cloud, machine) == ["200"]


@pytest.mark.cloud
@pytest.mark.cloud_ci
def test_failed_job_leaves_lines_not_group(cloud, machine, container):
    """Also where rights to read the job and to delete the group come late."""
    create(machine, bucket=cloud.bucket)
    # Other tests delete groups meanwhile.
    kept = {"match": f"DELETE compute.*-{cloud.bucket[-8:]}", "status": 403}
    cloud.fail({"match": f"{cloud.bucket}.*DONE.json", "status": 403}, kept)
    machine.boot(container, CONTAINER="ls")
    machine.says("no right to read")
    assert not (machine.directory / "output").exists()
    cloud.fail(kept)
    assert "ended with exit code 2; last lines" in machine.says("cannot be deleted (HTTP 403)")
    cloud.fail()
    machine.says("group is being deleted")
    *refused, last = deletions(cloud, machine)
    assert {*refused} == {"403"} and last == "200"
    lines = (cloud.files / "jobs" / "a" / "vm.log").read_text()
    assert "ls: unrecognized option '--log-dir'" in lines


@pytest.mark.cloud
def test_killed_preempted_job_goes_on(cloud, machine, container):
    create(machine, bucket=cloud.bucket)
    machine.install("unsaved", "#!/bin/bash\ntrap 'exit 137' TERM\nwhile :; do sleep; done\n")
    machine.boot(container, CONTAINER="unsaved")
    cloud.until((machine.directory / "pid").exists)
    machine.notice()
    machine.says("the next machine goes on from the newest checkpoint")
    machine.press_power()
    assert not deletions(cloud, machine)


def test_account_may_delete_own_group(caller):
    create(caller)
    project, ours = "projects/demo-project", "projects/demo-project/roles/training."
    tag = "resource.matchTag('demo-project/training-vm', 'job-demo')"
    assert {(bound[0], bound[1], bound[3]) for bound in caller.project.bindings()} == {
        ("demo-project/training", "roles/artifactregistry.reader", ""),
        (project, "roles/logging.logWriter", ""),
        ("gs://demo", "roles/storage.objectUser", ""),  # the job's bucket
        ("gs://demo", "roles/storage.objectViewer", ""),  # the data's
        # of unmanaged groups, which hold nothing of their own
        (project, f"{ours}instanceGroups", ""),
        (project, f"{ours}instanceGroupManagers", f"^::^title=own-group::expression={tag}"),
    }
    tags = '{"resourceManagerTags": {"demo-project/training-vm": "job-demo"}}'
    assert f'"params": {tags}' in (caller.directory / "sent").read_text()
    permissions = [call["flags"].get("--permissions") for call in caller.project.calls()]
    groups = ("instanceGroupManagers", "instanceGroups")
    assert [*filter(None, permissions)] == [[f"compute.{group}.delete"] for group in groups]


def test_dry_run_prints_what_run_runs(caller):
    dry = create(caller, "--dry-run --machine-type=n1-highmem-2")
    assert not (caller.directory / "calls.jsonl").exists()
    assert not (caller.directory / "sent").exists()
    assert dry == create(caller, "--machine-type=n1-highmem-2")
    assert dry.count("\ngcloud ") == len(caller.project.calls()) > 10


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (f"Demo {PLACE} -- {JOB}", "NAME 'Demo'"),
        (f"demo {PLACE}", "the job is missing"),
        (f"demo {PLACE} -- --job-dir jobs/a", "--job-dir 'jobs/a'"),
    ],
)
def test_impossible_machine_is_refused(caller, words, why):
    printed = caller.run(f"create {words}", code=2)
    assert (printed.count("\n"), caller.project.calls()) == (1, [])
    assert printed.startswith("error: ") and why in printed


def test_delete_lists_and_asks(caller):
    create(caller)
    made = ["compute instance-templates", "iam service-accounts", "resource-manager tags values"]
    caller.project.calls()
    for typed, code, deleted in (("n\n", 1, []), ("y\n", 0, [f"{group} delete" for group in made])):
        printed = caller.run(f"delete job-demo {IN}", typed, code)
        assert all(group in printed for group in made)
        assert caller.project.changes() == deleted, printed
    assert caller.run(f"delete job-demo {IN}") == "nothing is left of job-demo\n"


GROUPS = "compute instance-groups managed"
MARK = "=".join(MANAGED_BY)
THINGS = {
    GROUPS: "training-vm-demo",
    "compute instance-templates": "training-vm-demo",
    "iam service-accounts": "training-vm-demo@demo-project.iam.gserviceaccount.com",
    "resource-manager tags values": "demo-project/training-vm/demo",
}
descriptions = st.sampled_from([MARK, f"{MARK}-2", f"my {MARK}", ""])


@settings(max_examples=8)
@given(st.dictionaries(st.sampled_from(sorted(THINGS)), descriptions))
@example(dict.fromkeys(THINGS, ""))
def test_foreign_things_of_machine_stay(caller, described):
    """Whatever has a name of the machine's and another description stays, and costs one line."""
    state = caller.project.state()
    for group, name in THINGS.items():
        about = {"description": described.get(group), "labels": dict([MANAGED_BY])}
        state["things"][group] = {name: about} if group in described else {}
    caller.project.save(state)
    foreign = {group for group, description in described.items() if description != MARK}

    code = 2 if foreign or GROUPS in described else 0
    caller.run(f"create demo {PLACE} -- {JOB}", code=code)
    assert code == 0 or caller.project.state()["things"] == state["things"]
    printed = caller.run(f"delete demo {IN} --yes")
    left = {group for group in THINGS if caller.project.state()["things"][group]}
    assert (left, printed.count("stays, as")) == (foreign, len(foreign))

"""A machine of one's own: what it takes to be made, and that it trains through preemptions and then costs no more."""

import json
import re
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from common.google_cloud import MANAGED_BY
from components.convert.convert import convert
from components.convert.options import Options

STEPS = 12_000
REGISTRY = "us-docker.pkg.dev/demo-project/training"
PLACE = [
    "--project",
    "demo-project",
    "--zone",
    "us-central1-a",
    "--image",
    f"{REGISTRY}/image@sha256:{'0' * 64}",
]


def flags(job_dir: object, data_dir: object, steps: int = STEPS) -> list[object]:
    words = [
        "--data-dir",
        data_dir,
        "--job-dir",
        job_dir,
        "--train-steps",
        steps,
        "--deterministic",
    ]
    return [*words, "--batch-size", 32, "--checkpoint-num-steps", 0, "--checkpoint-secs", 1]


def create(machine, *more: object, bucket: str = "demo", steps: int = STEPS) -> str:
    job = [
        "--cluster",
        "clusters/local.yaml",
        "--",
        *flags(f"gs://{bucket}/jobs/a", f"gs://{bucket}/data", steps),
    ]
    done = machine.run("create", f"job-{bucket[-8:]}", *PLACE, *more, "--", *job)
    assert done.returncode == 0, done.stderr
    return done.stdout


def deletions(cloud, machine) -> list[str]:
    """What was answered to each request to delete the machine's group."""
    lines = (cloud.work / "requests.log").read_text().splitlines()
    path = f"DELETE compute.googleapis.com/compute/v1/{machine.metadata['created-by']}?"
    return [line.split()[-1] for line in lines if line.startswith(path)]


@pytest.mark.cloud
def test_three_preemptions_cost_no_step_and_change_no_bit_and_the_group_is_deleted_once(
    cloud, machine, container
):
    convert(Options(dataset="digits", output=str(cloud.files / "data"), shards=2))
    plain = [
        sys.executable,
        "-m",
        "trainer.task",
        *flags(f"gs://{cloud.bucket}/plain", cloud.files / "data"),
    ]
    subprocess.run(list(map(str, plain)), check=True, capture_output=True)
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
            assert (
                f"saved at step {cloud.steps(job_dir)}\n"
                in (machine.directory / "output").read_text()
            )
        newest = cloud.steps(job_dir)
    assert newest < STEPS and not deletions(cloud, machine)
    machine.boot(container)
    assert f"from step {newest} to {STEPS}" in machine.says("group is being deleted")

    assert json.loads((job_dir / "DONE.json").read_text())["step"] == STEPS
    cloud.assert_same_weights(cloud.files / "plain", job_dir)
    assert deletions(cloud, machine) == ["200"]
    machine.cut_power()

    create(machine, bucket=cloud.bucket)
    machine.boot(container)
    machine.says("group is being deleted")
    assert not (machine.directory / "output").exists(), (
        "no container is started for a job that is done"
    )
    assert deletions(cloud, machine) == ["200", "200"]


@pytest.mark.cloud
@pytest.mark.cloud_ci
def test_a_job_that_fails_leaves_its_last_lines_in_the_bucket_and_no_group(
    cloud, machine, container
):
    create(machine, bucket=cloud.bucket)
    machine.boot(container, CONTAINER="ls")
    assert "ended with exit code 2; last lines" in machine.says("group is being deleted")
    assert (
        "ls: unrecognized option '--log-dir'" in (cloud.files / "jobs" / "a" / "vm.log").read_text()
    )
    assert deletions(cloud, machine) == ["200"]


@pytest.mark.cloud
def test_preempted_job_that_was_killed_goes_on(cloud, machine, container):
    create(machine, bucket=cloud.bucket)
    machine.install("unsaved", "#!/bin/bash\ntrap 'exit 137' TERM\nwhile :; do sleep; done\n")
    machine.boot(container, CONTAINER="unsaved")
    cloud.until((machine.directory / "pid").exists)
    machine.notice()
    machine.says("the next machine goes on from the newest checkpoint")
    machine.press_power()
    assert not deletions(cloud, machine)


@pytest.mark.cloud
def test_the_right_to_read_and_to_delete_is_waited_for(cloud, machine, container):
    create(machine, bucket=cloud.bucket)
    kept = {
        "match": f"DELETE compute.*-{cloud.bucket[-8:]}",
        "status": 403,
    }  # Other tests delete groups meanwhile.
    cloud.fail({"match": f"{cloud.bucket}.*DONE.json", "status": 403}, kept)
    machine.boot(container, CONTAINER="true")
    machine.says("no right to read")
    assert not (machine.directory / "output").exists()
    cloud.fail(kept)
    machine.says("cannot be deleted (HTTP 403)")
    cloud.fail()
    machine.says("group is being deleted")
    assert set(deletions(cloud, machine)[:-1]) == {"403"} and deletions(cloud, machine)[-1] == "200"


@pytest.mark.cloud
@pytest.mark.parametrize("steps", [100, 101])
def test_a_done_job_of_fewer_steps_than_asked_for_goes_on(cloud, machine, container, steps):
    (cloud.files / "jobs" / "a").mkdir(parents=True)
    (cloud.files / "jobs" / "a" / "DONE.json").write_text(
        json.dumps({"step": 100, "loss": 0.5}, indent=1)
    )
    create(machine, "--keep", bucket=cloud.bucket, steps=steps)
    machine.boot(container, CONTAINER="true")
    machine.says("kept as asked")
    assert (machine.directory / "output").exists() == (steps > 100)
    assert not deletions(cloud, machine)


def test_its_account_has_these_roles_and_may_delete_only_the_group_with_its_tag(caller):
    create(caller)
    flags = [
        {name: values[-1] for name, values in call["flags"].items()} for call in caller.gcloud()
    ]
    granted = {each["--role"]: each.get("--condition") for each in flags if "--role" in each}
    ours = "projects/demo-project/roles/training."
    assert granted.keys() == {
        "roles/artifactregistry.reader",  # of one repository
        "roles/logging.logWriter",
        "roles/storage.objectUser",  # of the job's bucket
        "roles/storage.objectViewer",  # of the data's
        f"{ours}instanceGroups",  # of unmanaged groups, which hold nothing of their own
        f"{ours}instanceGroupManagers",
    }
    condition = "::expression=resource.matchTag('demo-project/training-vm', 'job-demo')"
    assert granted[f"{ours}instanceGroupManagers"].endswith(condition)
    body = json.loads(re.search(r"\{.*\}", (caller.directory / "sent").read_text(), re.DOTALL)[0])
    assert body["params"]["resourceManagerTags"] == {"demo-project/training-vm": "job-demo"}
    permissions = [each["--permissions"] for each in flags if "--permissions" in each]
    assert permissions == ["compute.instanceGroupManagers.delete", "compute.instanceGroups.delete"]


def test_a_dry_run_runs_nothing_and_prints_what_a_run_runs(caller):
    dry = create(caller, "--dry-run", "--machine-type=n1-highmem-2")
    assert (
        not (caller.directory / "calls.jsonl").exists() and not (caller.directory / "sent").exists()
    )
    assert dry == create(caller, "--machine-type=n1-highmem-2")
    assert dry.count("\ngcloud ") == len(caller.gcloud()) > 10


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["Demo", *PLACE, "--", *flags("gs://b/j", "gs://b/d")], "NAME 'Demo'"),
        (["demo", *PLACE], "the job is missing"),
        (
            ["demo", *PLACE, "--image", "train:dev", "--", *flags("gs://b/j", "gs://b/d")],
            "--image train:dev",
        ),
        (["demo", *PLACE, "--", *flags("jobs/a", "gs://b/d")], "--job-dir 'jobs/a'"),
        (
            [
                "demo",
                *PLACE,
                "--machine-type",
                "n1-standard-8",
                "--",
                *flags("gs://b/j", "gs://b/d"),
            ],
            "--FLAG=VALUE",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line_before_anything_is_made(caller, words, why):
    done = caller.run("create", *words)
    assert (done.returncode, done.stderr.count("\n"), caller.gcloud()) == (2, 1, []), done.stderr
    assert done.stderr.startswith("error: ") and why in done.stderr


def test_delete_lists_what_is_there_and_deletes_it_after_a_yes(caller):
    create(caller)
    made = ["compute instance-templates training-vm-job-demo --project=demo-project"]
    made += [
        "iam service-accounts training-vm-job-demo@demo-project.iam.gserviceaccount.com "
        "--project=demo-project"
    ]
    made += ["resource-manager tags values demo-project/training-vm/job-demo"]
    for typed, code, deleted in (("n\n", 1, 0), ("y\n", 0, 3)):
        done = caller.run("delete", "job-demo", *PLACE[:4], typed=typed)
        assert (done.stdout.splitlines(), done.returncode) == (made, code), done.stderr
        assert sum(call["verb"] == "delete" for call in caller.gcloud()) == deleted
    assert caller.run("delete", "job-demo", *PLACE[:4]).stdout == "nothing is left of job-demo\n"


_GROUPS = "compute instance-groups managed"
MARK = "=".join(MANAGED_BY)
THINGS = {
    _GROUPS: "training-vm-demo",
    "compute instance-templates": "training-vm-demo",
    "iam service-accounts": "training-vm-demo@demo-project.iam.gserviceaccount.com",
    "resource-manager tags values": "demo-project/training-vm/demo",
}


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(sorted(THINGS)), st.sampled_from([MARK, f"{MARK}-2", f"my {MARK}", ""])
    )
)
@example(dict.fromkeys(THINGS, ""))
def test_foreign_things_of_machine_stay(caller, descriptions):
    """Whatever has the names of a machine's things and another description stays as it is, and costs one line."""
    path = caller.directory / "state.json"
    state = json.loads(path.read_text())
    for group, name in THINGS.items():
        about = (
            {name: {"description": descriptions[group], "labels": dict([MANAGED_BY])}}
            if group in descriptions
            else {}
        )
        state["things"][group] = about
    path.write_text(json.dumps(state))
    foreign = {group for group, description in descriptions.items() if description != MARK}

    made = caller.run(
        "create", "demo", *PLACE, "--", *flags("gs://demo/j", "gs://demo/d")
    ).returncode
    assert made == (2 if foreign or _GROUPS in descriptions else 0)
    assert made == 0 or json.loads(path.read_text())["things"] == state["things"]
    done = caller.run("delete", "demo", *PLACE[:4], "--yes")
    left = {group for group in THINGS if json.loads(path.read_text())["things"][group]}
    assert (done.returncode, left, done.stdout.count("stays, as")) == (0, foreign, len(foreign))

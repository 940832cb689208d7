"""The builds' submit steps, as the accounts that deploy/setup makes, with their roles alone."""

import os
import re
import sys

import pytest
import yaml
from google.cloud import aiplatform

from tests.cloud.conftest import IMAGE, ONE, PIPELINE, TRAIN, YOU
from tests.cloud.iam import host
from tests.deploy.build_file import ROOT, BuildFile
from tests.deploy.calls import NEEDS
from tests.deploy.gcloud import Project
from tests.programs import install

pytestmark = pytest.mark.cloud
PROJECT = "projects/demo-project"
ROLE = ".*docs/PROJECT.md lists the role"
ACTING, REFUSED = "iam.serviceAccountUser", "do not have permission to act as service_account"


@pytest.fixture
def projects(cloud, tmp_path):
    """Projects demo-project, and our-project, whose releases go to demo-project."""
    demo = Project.begin(tmp_path / "demo", "demo-project", {})
    demo.setup(f"--bucket {cloud.bucket} --github me/mine")
    things = demo.state()["things"]
    groups = ("projects", "storage buckets", "iam service-accounts")
    shared = {group: things[group] for group in groups}
    ours = Project.begin(tmp_path / "ours", "our-project", shared)
    production = f"--production demo-project --production-bucket {cloud.bucket}"
    ours.setup(f"--github me/mine {production}")
    cloud.allow(bindings=demo.bindings() + ours.bindings())
    return demo, ours


@pytest.fixture
def submitted(cloud, projects, tmp_path):
    """Runs the submit step of a build file as an account; returns what it printed, and the job."""
    # of `docker run --rm --network=... IMAGE`
    programs = {".venv/bin/python": ":", "bin/docker": "shift 4; set -- -m"}
    for name, first in programs.items():
        install(tmp_path / name, f'#!/bin/sh\n{first} "$@"\nexec {sys.executable} "$@"\n')
    for name in ("pipelines", "components", "trainer", "common"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "chief.yaml").write_text(ONE)
    (tmp_path / "build").mkdir()

    def submit(account, file="cloudbuild.yaml", **values):
        project = re.search("@([a-z-]+)", account)[1]
        flags = "--train-steps 150 --cluster chief.yaml"
        values = {"_BUCKET": cloud.bucket, "_FLAGS": flags, "PROJECT_ID": project, **values}
        (tmp_path / "build" / "image.txt").write_text(IMAGE.replace("demo-project", project))
        names = [name for name in os.environ if re.search("^GCE_|_CA_|^GRPC_|^PYTHONPATH", name)]
        env = {name: os.environ[name] for name in names}
        env["GCE_METADATA_HOST"] = host(account, cloud.bucket)
        env["PATH"] = f"{tmp_path}/bin:{os.environ['PATH']}"
        done = BuildFile(path=file, values=values).step("submit", tmp_path, **env)
        assert done.returncode == 0, done.stdout
        run = re.search(r"submitted (\S+):", done.stdout)[1]
        return done.stdout, aiplatform.PipelineJob.get(run)

    return submit


@pytest.mark.cloud_ci
def test_command_by_hand_trains(cloud, submitted):
    head = (ROOT / "cloudbuild.yaml").read_text()
    account = re.search("serviceAccounts/(.*)@PROJECT", head)[1]
    until = re.search("BUCKET;_UNTIL=([a-z]+)", head)[1]
    printed, job = submitted(f"{account}@demo-project.iam.gserviceaccount.com", _UNTIL=until)
    assert job.state.name == "PIPELINE_STATE_SUCCEEDED" and "version 1 of" in printed
    assert cloud.needs()["build"] == NEEDS["seen"]["build"]


@pytest.mark.cloud_ci
@pytest.mark.parametrize(
    ("number", "trigger"), [(0, "training-main"), (0, "training-tag"), (1, "training-tag")]
)
def test_build_of_trigger_submits(cloud, projects, submitted, number, trigger):
    triggers = projects[number].state()["things"]["builds triggers"]
    file = yaml.safe_load(triggers[trigger]["file"])
    account = file["serviceAccount"].rpartition("/")[2]
    printed, job = submitted(account, file["filename"], **file["substitutions"])
    job.cancel()
    assert trigger == "training-main" or cloud.needs()["release"] == NEEDS["seen"]["release"]
    assert job.gca_resource.service_account == PIPELINE and "warning" not in printed


@pytest.mark.parametrize(
    ("resource", "role", "account", "code", "message"),
    [
        (PIPELINE, ACTING, YOU, 2, REFUSED),
        ("gs://{}", "storage.objectUser", YOU, 2, "no storage.objects.create"),
        (PROJECT, "aiplatform.user", YOU, 2, "Permission 'aiplatform.pipelineJobs.create' denied"),
        (TRAIN, ACTING, PIPELINE, 1, f"train failed: .*{REFUSED}: {TRAIN}{ROLE}"),
        (PROJECT, "aiplatform.user", PIPELINE, 1, f"'aiplatform.metadataStores.get' denied{ROLE}"),
        ("gs://{}", "storage.objectUser", PIPELINE, 1, rf"not have `\[storage.objects.get{ROLE}"),
        ("gs://{}", "storage.objectUser", TRAIN, 1, f"'storage.objects.create' denied{ROLE}"),
    ],
)
def test_missing_role_is_named(cloud, resource, role, account, code, message):
    """A run is not sent where the submission shows what is missing, and else it fails."""
    cloud.allow(resource.format(cloud.bucket), role, account)
    printed = cloud.printed(cloud.start(ONE, "--train-steps 20"), code)
    assert re.search(message, printed), printed
    assert code == 1 or not list(cloud.files.iterdir())

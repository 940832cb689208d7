"""The builds' submit steps, as the accounts that deploy/setup makes, with their roles alone."""

import dataclasses
import os
import pathlib
import re
import sys

import pytest
import yaml
from google.cloud import aiplatform

from tests.cloud.conftest import BUILD, IMAGE, ONE, PIPELINE, TRAIN, Cloud
from tests.cloud.iam import host
from tests.deploy.build_file import ROOT, BuildFile
from tests.deploy.calls import NEEDS
from tests.deploy.gcloud import Project

pytestmark = pytest.mark.cloud
RELEASE = "training-release@our-project.iam.gserviceaccount.com"
PROJECT = "projects/demo-project"
ACTING, REFUSED = "iam.serviceAccountUser", "do not have permission to act as service_account"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Builds:
    """Builds of demo-project, and of our-project, whose releases go to demo-project."""

    cloud: Cloud
    workspace: pathlib.Path
    projects: tuple[Project, Project]

    def allow(self, *without):
        """Makes the cloud enforce the bindings of deploy/setup but for one."""
        granted = [bound for project in self.projects for bound in project.bindings()]
        self.cloud.allow(*without, bindings=granted)

    def submit(self, account, file="cloudbuild.yaml", **values):
        """Runs the submit step of a build file as an account."""
        project = re.search("@([a-z-]+)", account)[1]
        flags = "--train-steps 150 --cluster chief.yaml"
        values = {"_BUCKET": self.cloud.bucket, "_FLAGS": flags, "PROJECT_ID": project, **values}
        image = IMAGE.replace("demo-project", project)
        (self.workspace / "build" / "image.txt").write_text(image)
        names = [name for name in os.environ if re.search("^GCE_|_CA_|^GRPC_|^PYTHONPATH", name)]
        env = {name: os.environ[name] for name in names}
        env["GCE_METADATA_HOST"] = host(account, self.cloud.bucket)
        env["PATH"] = f"{self.workspace}/bin:{os.environ['PATH']}"
        return BuildFile(path=file, values=values).step("submit", self.workspace, **env)


@pytest.fixture
def builds(cloud, tmp_path):
    # of `docker run --rm --network=... IMAGE`
    programs = {".venv/bin/python": ":", "bin/docker": "shift 4; set -- -m"}
    for name, first in programs.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(f'#!/bin/sh\n{first} "$@"\nexec {sys.executable} "$@"\n')
        (tmp_path / name).chmod(0o755)
    for name in ("pipelines", "components", "trainer", "common"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "chief.yaml").write_text(ONE)
    (tmp_path / "build").mkdir()

    demo = Project.begin(tmp_path / "demo", "demo-project", {})
    demo.setup(f"--bucket {cloud.bucket} --github me/mine")
    things = demo.state()["things"]
    groups = ("projects", "storage buckets", "iam service-accounts")
    shared = {group: things[group] for group in groups}
    ours = Project.begin(tmp_path / "ours", "our-project", shared)
    production = f"--production demo-project --production-bucket {cloud.bucket}"
    ours.setup(f"--github me/mine {production}")
    builds = Builds(cloud=cloud, workspace=tmp_path, projects=(demo, ours))
    builds.allow()
    return builds


def _job_of(done):
    assert done.returncode == 0, done.stdout
    return aiplatform.PipelineJob.get(re.search(r"submitted (\S+):", done.stdout)[1])


@pytest.mark.cloud_ci
def test_command_by_hand_trains(builds):
    head = (ROOT / "cloudbuild.yaml").read_text()
    account = re.search("serviceAccounts/(.*)@PROJECT", head)[1]
    until = re.search("BUCKET;_UNTIL=([a-z]+)", head)[1]
    done = builds.submit(f"{account}@demo-project.iam.gserviceaccount.com", _UNTIL=until)
    assert _job_of(done).state.name == "PIPELINE_STATE_SUCCEEDED"
    assert "version 1 of" in done.stdout
    assert builds.cloud.needs()["build"] == NEEDS["seen"]["build"]


@pytest.mark.cloud_ci
@pytest.mark.parametrize(
    ("number", "trigger"), [(0, "training-main"), (0, "training-tag"), (1, "training-tag")]
)
def test_build_of_trigger_submits(builds, number, trigger):
    triggers = builds.projects[number].state()["things"]["builds triggers"]
    file = yaml.safe_load(triggers[trigger]["file"])
    account = file["serviceAccount"].rpartition("/")[2]
    done = builds.submit(account, file["filename"], **file["substitutions"])
    job = _job_of(done)
    job.cancel()
    assert trigger == "training-main" or builds.cloud.needs()["release"] == NEEDS["seen"]["release"]
    assert job.gca_resource.service_account == PIPELINE and "warning" not in done.stdout


@pytest.mark.parametrize(
    ("resource", "role", "account", "message"),
    [
        (PIPELINE, ACTING, BUILD, REFUSED),
        ("gs://{}", "storage.objectUser", BUILD, "no storage.objects.create"),
        (PIPELINE, ACTING, RELEASE, REFUSED),
        (PROJECT, "aiplatform.user", BUILD, "Permission 'aiplatform.pipelineJobs.create' denied"),
    ],
)
def test_missing_binding_is_refused(builds, resource, role, account, message):
    resource = resource.format(builds.cloud.bucket)
    builds.allow(resource, role, account)
    if account == RELEASE:
        done = builds.submit(RELEASE, "deploy/builds/promote.yaml", _PRODUCTION="demo-project")
    else:
        done = builds.submit(BUILD, _UNTIL="submit")
    assert done.returncode == 2 and "error: " in done.stdout and message in done.stdout, done.stdout
    assert not list(builds.cloud.files.iterdir())


@pytest.mark.parametrize(
    ("resource", "role", "account", "message"),
    [
        (TRAIN, ACTING, PIPELINE, f"train failed: .*{REFUSED}: {TRAIN}"),
        (PROJECT, "aiplatform.user", PIPELINE, "Permission 'aiplatform.metadataStores.get' denied"),
        ("gs://{}", "storage.objectUser", PIPELINE, r"not have `\[storage.objects.get"),
        ("gs://{}", "storage.objectUser", TRAIN, "Permission 'storage.objects.create' denied"),
    ],
)
def test_run_without_role_says_so(cloud, resource, role, account, message):
    cloud.allow(resource.format(cloud.bucket), role, account)
    printed = cloud.finish(cloud.start(ONE, "--train-steps 20"), code=1).printed
    assert re.search(f"{message}.*docs/PROJECT.md lists the role", printed), printed

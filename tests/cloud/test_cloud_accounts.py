"""The builds' submit steps, as the accounts that deploy/setup makes, with the roles that it grants them and no others."""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
import requests
import yaml
from google.cloud import aiplatform

from tests.cloud.conftest import Cloud
from tests.cloud.iam import host
from tests.deploy.build_file import ROOT, BuildFile
from tests.deploy.gcloud import Project

pytestmark = pytest.mark.cloud
CHIEF = "{strategy: one_device, chief: {machine: n1-standard-8}}"
BUILD, PIPELINE, TRAIN, RELEASE = (
    f"training-{name}.iam.gserviceaccount.com"
    for name in (
        "build@demo-project",
        "pipeline@demo-project",
        "train@demo-project",
        "release@our-project",
    )
)
ACTING, REFUSED = "iam.serviceAccountUser", "do not have permission to act as service_account"
API = "https://us-central1-aiplatform.googleapis.com/v1/projects/demo-project/locations/us-central1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Builds:
    """Builds of demo-project, and of our-project, whose releases go to demo-project."""

    cloud: Cloud
    workspace: pathlib.Path
    projects: tuple[Project, Project]

    def allow(self, without: tuple[str, str, str] | None = None) -> None:
        """Has the cloud enforce what deploy/setup granted, but for one binding."""
        granted = [bound for project in self.projects for bound in project.bindings()]
        kept = [bound for bound in granted if bound[:3] != without]
        assert len(kept) == len(granted) - bool(without)
        requests.put(
            f"http://127.0.0.1/loopback/iam/{self.cloud.bucket}", json=kept
        ).raise_for_status()

    def submit(self, file: str, account: str, **values: str) -> subprocess.CompletedProcess[str]:
        """Runs the submit step of a build file as an account."""
        values = {
            "_BUCKET": self.cloud.bucket,
            "_FLAGS": "--train-steps 150 --cluster chief.yaml",
            **values,
        }
        image = self.cloud.image.replace("demo-project", values["PROJECT_ID"])
        (self.workspace / "build" / "image.txt").write_text(image)
        shared = {
            name: value
            for name, value in os.environ.items()
            if re.search("^GCE_|_CA_|^GRPC_", name)
        }
        shared |= {"GCE_METADATA_HOST": host(account, self.cloud.bucket)}
        path = f"{self.workspace}/bin:{os.environ['PATH']}"
        return BuildFile(path=file, values=values).step(
            "submit", self.workspace, **shared, PATH=path
        )

    def request(self, account: str, method: str, url: str, **rest: Any) -> requests.Response:
        """Sends one request as an account."""
        token = {"Authorization": f"Bearer {host(account, self.cloud.bucket)}"}
        return requests.request(method, url, headers=token, **rest)


@pytest.fixture
def builds(cloud, tmp_path):
    programs = {
        ".venv/bin/python": ":",
        "bin/docker": "shift 4; set -- -m",
    }  # of `docker run --rm --network=... IMAGE`
    for name, first in programs.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(f'#!/bin/sh\n{first} "$@"\nexec {sys.executable} "$@"\n')
        (tmp_path / name).chmod(0o755)
    for name in ("pipelines", "components", "trainer"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "chief.yaml").write_text(CHIEF)
    (tmp_path / "build").mkdir()

    demo = Project.begin(tmp_path / "demo", "demo-project", {})
    demo.setup("--bucket", cloud.bucket, "--github", "me/mine")
    things = demo.state()["things"]
    shared = {
        group: things[group] for group in ("projects", "storage buckets", "iam service-accounts")
    }
    ours = Project.begin(tmp_path / "ours", "our-project", shared)
    ours.setup(
        "--github", "me/mine", "--production", "demo-project", "--production-bucket", cloud.bucket
    )
    builds = Builds(cloud=cloud, workspace=tmp_path, projects=(demo, ours))
    builds.allow()
    return builds


def _run_of(printed: str) -> str:
    return re.search(r"submitted (\S+):", printed)[1]


@pytest.mark.cloud_ci
def test_by_hand_command_trains_and_registers(builds):
    head = (ROOT / "cloudbuild.yaml").read_text()
    name, until = (
        re.search(pattern, head)[1]
        for pattern in ("serviceAccounts/(.*)@PROJECT", "BUCKET;_UNTIL=([a-z]+)")
    )
    account = f"{name}@demo-project.iam.gserviceaccount.com"
    done = builds.submit("cloudbuild.yaml", account, PROJECT_ID="demo-project", _UNTIL=until)
    assert done.returncode == 0 and "version 1 of" in done.stdout, done.stdout
    [job] = [job for job in builds.cloud.jobs() if job["display_name"] == _run_of(done.stdout)]
    assert job["state"] == "JOB_STATE_SUCCEEDED"


@pytest.mark.cloud_ci
@pytest.mark.parametrize(
    ("number", "trigger"), [(0, "training-main"), (0, "training-tag"), (1, "training-tag")]
)
def test_triggers_build_submits(builds, number, trigger):
    project = builds.projects[number]
    file = yaml.safe_load(project.state()["things"]["builds triggers"][trigger]["file"])
    account = file["serviceAccount"].rpartition("/")[2]
    done = builds.submit(
        file["filename"], account, PROJECT_ID=project.name, **file["substitutions"]
    )
    assert done.returncode == 0 and "warning" not in done.stdout, done.stdout
    job = aiplatform.PipelineJob.get(
        _run_of(done.stdout), project="demo-project", location="us-central1"
    )
    assert job.gca_resource.service_account == PIPELINE
    job.cancel()


@pytest.mark.parametrize(
    ("resource", "role", "account", "message"),
    [
        (PIPELINE, ACTING, BUILD, REFUSED),
        (
            "gs://{}",
            "storage.objectUser",
            BUILD,
            "no storage.objects.create, storage.objects.delete",
        ),
        (PIPELINE, ACTING, RELEASE, REFUSED),
    ],
)
def test_missing_binding_is_refused(builds, resource, role, account, message):
    builds.allow(
        without=(resource.format(builds.cloud.bucket), f"roles/{role}", f"serviceAccount:{account}")
    )
    if account == RELEASE:
        values = {"PROJECT_ID": "our-project", "_PRODUCTION": "demo-project"}
        done = builds.submit("deploy/builds/promote.yaml", RELEASE, **values)
    else:
        done = builds.submit("cloudbuild.yaml", BUILD, PROJECT_ID="demo-project", _UNTIL="submit")
    assert done.returncode == 2 and "error: " in done.stdout and message in done.stdout, done.stdout


def test_binding_out_of_sight_is_warned_of(builds):
    builds.allow(without=(TRAIN, f"roles/{ACTING}", f"serviceAccount:{PIPELINE}"))
    done = builds.submit("cloudbuild.yaml", BUILD, PROJECT_ID="demo-project", _UNTIL="submit")
    assert (
        done.returncode == 0
        and f"do not show whether {PIPELINE} may act as {TRAIN};" in done.stdout
    )
    aiplatform.PipelineJob.get(
        _run_of(done.stdout), project="demo-project", location="us-central1"
    ).cancel()


def test_vertex_refuses_other_accounts(builds):
    for account, kind, body in (
        (BUILD, "pipelineJobs", {}),  # as the project's default account
        (BUILD, "pipelineJobs", {"serviceAccount": TRAIN}),
        (PIPELINE, "customJobs", {"jobSpec": {"serviceAccount": RELEASE}}),
    ):
        refused = builds.request(account, "POST", f"{API}/{kind}", json=body)
        assert refused.status_code == 400 and REFUSED in refused.text


def test_only_the_pipeline_replaces_models(builds):
    for account, folder, status in (
        (TRAIN, "models", 403),
        (BUILD, "models", 403),
        (TRAIN, "specs", 403),
        (TRAIN, "runs", 204),
        (PIPELINE, "models", 204),
    ):
        path = builds.cloud.files / folder / "a"
        path.parent.mkdir(exist_ok=True)
        path.touch()
        url = f"https://storage.googleapis.com/storage/v1/b/{builds.cloud.bucket}/o/{folder}%2Fa"
        assert builds.request(account, "GET", url).status_code == 200
        assert builds.request(account, "DELETE", url).status_code == status

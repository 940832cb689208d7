"""deploy/setup against a gcloud that keeps what it is told and records every call."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests.deploy.calls import calls
from tests.deploy.gcloud import READING, command

ROOT = pathlib.Path(__file__).parents[2]
ALL = ("--github", "me/mine", "--billing-account", "0-1-2", "--tensorboard", "--production", "our-production")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project:
    """A project that gcloud finds."""

    home: pathlib.Path

    def setup(self, *flags: str, answer: str = "", code: int = 0) -> str:
        """Runs deploy/setup, which has to end with `code`; returns what it prints."""
        env = {**os.environ, "PATH": f"{self.home}:{os.environ['PATH']}", "FAKE_GCLOUD": str(self.home)}
        line = ["deploy/setup", "--project", "our-project", *flags]
        done = subprocess.run(line, cwd=ROOT, env=env, input=answer, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def state(self) -> dict[str, Any]:
        return json.loads((self.home / "state.json").read_text())

    def changes(self) -> list[str]:
        """The calls since the last time that were not for reading."""
        path = self.home / "calls.jsonl"
        calls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        path.unlink(missing_ok=True)
        return [f"{call['group']} {call['verb']}" for call in calls if call["verb"] not in READING]


def empty(home: pathlib.Path) -> Project:
    gcloud = home / "gcloud"
    gcloud.write_text(command())
    gcloud.chmod(0o755)
    things = {
        "projects": {"our-project": {}, "our-production": {}},
        "storage buckets": {"gs://our-production-training": {}},
        "iam service-accounts": {"training-pipeline@our-production.iam.gserviceaccount.com": {}},
    }
    state = {"project": "our-project", "objects": [], "things": things, "policies": {}}
    (home / "state.json").write_text(json.dumps(state))
    return Project(home=home)


@pytest.fixture
def project(tmp_path):
    return empty(tmp_path)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A project after its first run, and what that printed and changed."""
    project = empty(tmp_path_factory.mktemp("first"))
    return project, project.setup(*ALL), project.changes()


@pytest.fixture
def made(first, tmp_path):
    """A copy of it."""
    return Project(home=pathlib.Path(shutil.copytree(first[0].home, tmp_path / "made")))


def test_the_first_run_makes_all_and_the_second_what_is_missing_since_and_nothing_else(first, made):
    _, told, changes = first
    assert len(changes) == int(re.search(r"(\d+) changes", told)[1]) > 30
    wanted = {"services enable", "storage buckets update", "billing budgets create", "builds triggers import"}
    assert wanted <= set(changes)
    repositories = made.state()["things"]["artifacts repositories"]
    assert set(repositories["training"]["policies"]) == {"old", "newest", "releases"}
    assert "policies" not in repositories["pipelines"]
    before, state = made.state(), made.state()
    del state["things"]["artifacts repositories"]["pipelines"]
    lost = state["policies"]["projects"]["our-project"].pop(0)
    (made.home / "state.json").write_text(json.dumps(state))
    assert "our-project: 2 changes" in made.setup(*ALL)
    assert made.changes() == ["artifacts repositories create", "projects add-iam-policy-binding"]
    before["policies"]["projects"]["our-project"].remove(lost)
    before["policies"]["projects"]["our-project"].append(lost)
    assert made.state() == before


@pytest.mark.parametrize(
    ("flags", "production", "bucket"),
    [
        ((), "our-project", "our-bucket"),
        (("--production", "our-production"), "our-production", "our-production-training"),
    ],
    ids=["one project", "two projects"],
)
def test_triggers_are_filled_in(project, flags, production, bucket):
    project.setup("--bucket", "gs://our-bucket", "--github", "me/mine", *flags)
    files = {name: thing["file"] for name, thing in project.state()["things"]["builds triggers"].items()}
    assert not re.search("@[A-Z_]+@", "".join(files.values()))
    main, tag = (yaml.safe_load(files[f"training-{name}"]) for name in ("main", "tag"))
    assert (main["github"]["owner"], main["github"]["name"], main["substitutions"]["_BUCKET"]) == (
        "me",
        "mine",
        "our-bucket",
    )
    assert (tag["substitutions"]["_PRODUCTION"], tag["substitutions"]["_BUCKET"]) == (production, bucket)
    assert tag["substitutions"]["_SERVICE_ACCOUNT"] == f"training-pipeline@{production}.iam.gserviceaccount.com"


def test_what_costs_or_mails_is_made_on_request_only(project):
    project.setup()
    assert not {"ai tensorboards", "billing budgets", "builds triggers"} & set(project.state()["things"])
    assert not any("production" in member for bound in bindings(project) for member in bound)


def test_a_dry_run_and_an_undoing_without_the_right_answer_only_list(project, made):
    assert "+ gcloud storage buckets create gs://our-project-training" in project.setup("--dry-run")
    assert not project.changes()
    told = made.setup("--undo", answer="yes\n", code=2)
    assert "+ gcloud artifacts repositories delete training" in told and "nothing was deleted" in told
    assert not made.changes()


def test_the_undoing_leaves_nothing_but_a_bucket_that_is_not_empty(project, made):
    before, project = project.state(), made
    full = project.state()
    (project.home / "state.json").write_text(json.dumps(full | {"objects": ["gs://our-project-training/runs/"]}))
    told = project.setup("--undo", "--billing-account", "0-1-2", answer="our-project\n")
    assert "gs://our-project-training is not empty and stays" in told
    (project.home / "state.json").write_text(json.dumps(project.state() | {"objects": []}))
    project.setup("--undo", "--yes")
    left = {group: things for group, things in project.state()["things"].items() if things}
    services = left.pop("services")
    assert left == before["things"] and "aiplatform.googleapis.com" in services
    assert project.state()["policies"]["projects"]["our-project"] == []
    project.changes()
    project.setup("--undo", "--yes")
    assert not project.changes()


def test_undoing_keeps_what_it_did_not_make(project):
    before, foreign = project.state(), {"description": "managed_by=tfrecord-training-2"}
    account = "training-train@our-project.iam.gserviceaccount.com"
    for group, name in (
        ("artifacts repositories", "training"),
        ("ai tensorboards", "training"),
        ("storage buckets", "gs://our-project-training"),
        ("iam service-accounts", account),
    ):
        before["things"].setdefault(group, {})[name] = foreign
    (project.home / "state.json").write_text(json.dumps(before))
    project.setup(*ALL)
    assert (
        project.state()["things"]["artifacts repositories"]["training"] == foreign
    )  # nor does it delete images of others
    assert "stays, as it does not carry" in project.setup("--undo", "--yes", "--billing-account", "0-1-2")
    left = {group: set(things) for group, things in project.state()["things"].items() if things}
    del left["services"]
    assert left == {group: set(things) for group, things in before["things"].items()}
    assert {member for _, member in project.state()["policies"]["projects"]["our-project"]} == {
        f"serviceAccount:{account}"
    }


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--project", "P"), "--project 'P' is not the id of a project"),
        (("--github", "mine"), "--github 'mine' is not OWNER/REPOSITORY"),
        (("--project", "another-project"), "project another-project cannot be read"),
        (("--frobnicate",), "unknown argument --frobnicate"),
    ],
)
def test_mistakes_are_told_before_anything_is_made(project, flags, complaint):
    assert f"error: {complaint}" in project.setup(*flags, code=2)
    assert not project.changes()


def bindings(project: Project) -> set[tuple[str, str]]:
    """Role and member of every binding, whatever it is of."""
    policies = project.state()["policies"].values()
    return {tuple(bound) for group in policies for resource in group.values() for bound in resource}


# Of Google's reference "IAM roles and permissions": of each role that setup grants what the table of docs/PROJECT.md names.
ROLES = {
    "storage.legacyBucketReader": {"storage.buckets.get"},
    "storage.objectUser": {f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list", "update")},
    "storage.objectViewer": {"storage.objects.get", "storage.objects.list"},
    "iam.serviceAccountUser": {"iam.serviceAccounts.actAs"},
    "artifactregistry.reader": {"artifactregistry.repositories.downloadArtifacts"},
    "artifactregistry.writer": {f"artifactregistry.repositories.{what}loadArtifacts" for what in ("up", "down")},
    "logging.logWriter": {"logging.logEntries.create"},
    "aiplatform.user": {
        *("resourcemanager.projects.get", "aiplatform.tensorboardRuns.write", "aiplatform.models.upload"),
        *(f"aiplatform.pipelineJobs.{verb}" for verb in ("create", "get", "list", "cancel", "delete")),
        *(f"aiplatform.customJobs.{verb}" for verb in ("create", "get", "list", "cancel", "delete")),
        *(f"aiplatform.models.{verb}" for verb in ("get", "list", "update", "delete")),
    },
}


def test_the_accounts_have_the_roles_that_their_calls_need_and_no_others(project):
    project.setup("--tensorboard")
    granted = {(role.removeprefix("roles/"), member.split(":")[1].split("@")[0]) for role, member in bindings(project)}
    needed = set()
    for _, permission, role, accounts in calls():
        if accounts in ("you", "all", "deploy/vm"):  # no account that it makes
            continue
        assert permission in ROLES[role]
        # "build on pipeline": the first is who may
        needed |= {(role, f"training-{account.split(' on ')[0]}") for account in accounts.split(", ")}
    assert granted == needed

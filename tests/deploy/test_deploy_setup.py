"""deploy/setup against a gcloud that keeps what it is told and records every call."""

import dataclasses
import json
import pathlib
import re
import shutil

import pytest
import yaml

from tests.deploy.calls import ROLES, calls
from tests.deploy.gcloud import Project

ROOT = pathlib.Path(__file__).parents[2]
ALL = (
    "--github",
    "me/mine",
    "--billing-account",
    "0-1-2",
    "--tensorboard",
    "--production",
    "our-production",
)


def empty(home: pathlib.Path) -> Project:
    accounts = [
        f"training-{name}@our-production.iam.gserviceaccount.com" for name in ("pipeline", "train")
    ]
    things = {"storage buckets": ["gs://our-production-training"], "iam service-accounts": accounts}
    return Project.begin(home, "our-project", things | {"projects": ["our-production"]})


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
    return dataclasses.replace(
        first[0], home=pathlib.Path(shutil.copytree(first[0].home, tmp_path / "made"))
    )


def test_the_first_run_makes_all_and_the_second_what_is_missing_since_and_nothing_else(first, made):
    _, told, changes = first
    assert len(changes) == int(re.search(r"(\d+) changes", told)[1]) > 30
    wanted = {
        "services enable",
        "storage buckets update",
        "billing budgets create",
        "builds triggers import",
    }
    assert wanted <= set(changes)
    repositories = made.state()["things"]["artifacts repositories"]
    assert set(repositories["training"]["cleanupPolicies"]) == {"old", "newest", "releases"}
    assert "cleanupPolicies" not in repositories["pipelines"]
    before, state = made.state(), made.state()
    del state["things"]["artifacts repositories"]["pipelines"]
    del state["things"]["artifacts repositories"]["training"][
        "cleanupPolicies"
    ]  # the run ended before
    lost = state["policies"]["projects"]["our-project"].pop(0)
    (made.home / "state.json").write_text(json.dumps(state))
    assert "our-project: 3 changes" in made.setup(*ALL)
    assert made.changes() == [
        "artifacts repositories set-cleanup-policies",
        "artifacts repositories create",
        "projects add-iam-policy-binding",
    ]
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
    files = {
        name: thing["file"] for name, thing in project.state()["things"]["builds triggers"].items()
    }
    assert not re.search("@[A-Z_]+@", "".join(files.values()))
    main, tag = (yaml.safe_load(files[f"training-{name}"]) for name in ("main", "tag"))
    assert (main["github"]["owner"], main["github"]["name"], main["substitutions"]["_BUCKET"]) == (
        "me",
        "mine",
        "our-bucket",
    )
    assert (tag["substitutions"]["_PRODUCTION"], tag["substitutions"]["_BUCKET"]) == (
        production,
        bucket,
    )
    assert (
        tag["substitutions"]["_SERVICE_ACCOUNT"]
        == f"training-pipeline@{production}.iam.gserviceaccount.com"
    )
    assert (
        main["serviceAccount"]
        != tag["serviceAccount"]
        == (
            "projects/our-project/serviceAccounts/training-release@our-project.iam.gserviceaccount.com"
        )
    )


def test_what_costs_or_mails_is_made_on_request_only(project):
    project.setup()
    assert not {"ai tensorboards", "billing budgets", "builds triggers"} & set(
        project.state()["things"]
    )
    assert "production" not in str(project.bindings())


def test_a_dry_run_and_an_undoing_without_the_right_answer_only_list(project, made):
    assert "+ gcloud storage buckets create gs://our-project-training" in project.setup("--dry-run")
    assert not project.changes()
    told = made.setup("--undo", answer="yes\n", code=2)
    assert (
        "+ gcloud artifacts repositories delete training" in told and "nothing was deleted" in told
    )
    assert not made.changes()


def test_the_undoing_leaves_nothing_but_a_bucket_that_is_not_empty(project, made):
    before, project = project.state(), made
    full = project.state()
    (project.home / "state.json").write_text(
        json.dumps(full | {"objects": ["gs://our-project-training/runs/"]})
    )
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
    assert "stays, as it does not carry" in project.setup(
        "--undo", "--yes", "--billing-account", "0-1-2"
    )
    left = {group: set(things) for group, things in project.state()["things"].items() if things}
    del left["services"]
    assert left == {group: set(things) for group, things in before["things"].items()}
    assert {member for _, member, _ in project.state()["policies"]["projects"]["our-project"]} == {
        f"serviceAccount:{account}"
    }


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--project", "P"), "--project 'P' is not the id of a project"),
        (("--github", "mine"), "--github 'mine' is not OWNER/REPOSITORY"),
        (("--project", "another-project"), "project another-project cannot be read"),
        (("--frobnicate",), "unknown argument --frobnicate"),
        (
            ("--production", "our-production", "--production-bucket", "no-such"),
            "no bucket gs://no-such; run deploy/setup",
        ),
    ],
)
def test_mistakes_are_told_before_anything_is_made(project, flags, complaint):
    assert f"error: {complaint}" in project.setup(*flags, code=2)
    assert not project.changes()


def short(email: str) -> str:
    """The account in the table of docs/PROJECT.md, or nothing."""
    return match[1] if (match := re.search(r"training-(\w+)@", email)) else ""


def test_the_accounts_have_the_roles_that_their_calls_need_and_no_others(project):
    project.setup("--tensorboard")
    granted = {
        (role[6:], short(member), short(resource))
        for resource, role, member, _ in project.bindings()
    }
    needed = set()
    for _, permission, role, accounts in calls():
        if accounts in ("you", "all", "deploy/vm"):  # no account that it makes
            continue
        assert permission in ROLES[role]
        needed |= {(role, *account.partition(" on ")[::2]) for account in accounts.split(", ")}
    assert granted == needed


def test_only_releases_submit_in_production(made):
    members = {member for resource, _, member, _ in made.bindings() if "our-production" in resource}
    assert members == {"serviceAccount:training-release@our-project.iam.gserviceaccount.com"}

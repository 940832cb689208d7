"""deploy/setup against a gcloud that keeps what it is told and records every call."""

import dataclasses
import json
import pathlib
import re
import shutil

import pytest

from tests.deploy.calls import NEEDS, allows, calls
from tests.deploy.gcloud import Project
from tests.root import ROOT

pytestmark = pytest.mark.long
BILLING = "--billing-account 0-1-2"
ALL = f"--github me/mine {BILLING} --tensorboard --production our-production"
BUCKET = "gs://our-project-training"


def empty(home):
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
    return project, project.setup(ALL), project.changes()


@pytest.fixture
def made(first, tmp_path):
    """A copy of it."""
    home = shutil.copytree(first[0].home, tmp_path / "made")
    return dataclasses.replace(first[0], home=pathlib.Path(home))


def test_second_run_makes_what_is_missing(first, made):
    _, printed, changes = first
    assert len(changes) == int(re.search(r"(\d+) changes", printed)[1]) > 30
    before, state = made.state(), made.state()
    repositories = state["things"]["artifacts repositories"]
    assert {*repositories["training"].pop("cleanupPolicies")} == {"old", "newest", "releases"}
    del repositories["pipelines"]
    bindings = state["policies"]["projects"]["our-project"]
    lost = bindings.pop(0)
    made.save(state)
    assert "our-project: 3 changes" in made.setup(ALL)
    before["policies"]["projects"]["our-project"] = [*bindings, lost]
    assert made.state() == before


def test_costs_are_made_on_request(project):
    project.setup()
    assert not {"ai tensorboards", "billing budgets", "builds triggers"} & {*project.things()}
    assert "production" not in str(project.bindings())


def test_lifecycle_deletes_no_run():
    rules = json.loads((ROOT / "deploy" / "lifecycle.json").read_text())["rule"]
    deletions = [rule["condition"] for rule in rules if rule["action"]["type"] == "Delete"]
    assert [each["matchesPrefix"] for each in deletions] == [["source/"], ["specs/"]]


def test_listing_changes_nothing(project, made):
    bucket = f"gcloud storage buckets create {BUCKET} .*--public-access-prevention"
    assert re.search(bucket, project.setup("--dry-run"))
    printed = made.setup("--undo", answer="yes\n", code=2)
    assert "+ gcloud artifacts repositories delete training" in printed
    assert "nothing was deleted" in printed and not made.changes() + project.changes()


def test_undoing_leaves_only_full_bucket(project, made):
    before, state = project.things(), made.state()
    made.save(state | {"objects": [f"{BUCKET}/runs/"]})
    printed = made.setup(f"--undo {BILLING}", answer="our-project\n")
    assert f"{BUCKET} is not empty and stays" in printed
    made.save(made.state() | {"objects": []})
    made.setup("--undo --yes")
    assert made.things() == before and not made.state()["policies"]["projects"]["our-project"]
    made.changes()
    made.setup("--undo --yes")
    assert not made.changes()


def test_undoing_keeps_foreign_things(project):
    state, foreign = project.state(), {"description": "managed_by=tfrecord-training-2"}
    account = "training-train@our-project.iam.gserviceaccount.com"
    names = {
        "artifacts repositories": "training",
        "ai tensorboards": "training",
        "storage buckets": BUCKET,
        "iam service-accounts": account,
    }
    for group, name in names.items():
        state["things"].setdefault(group, {})[name] = foreign
    project.save(state)
    before = project.things()
    project.setup(ALL)
    # Nor does it delete images of others.
    assert project.things()["artifacts repositories"]["training"] == foreign
    assert "stays, as it does not carry" in project.setup(f"--undo --yes {BILLING}")
    left = {group: {*things} for group, things in project.things().items()}
    assert left == {group: {*things} for group, things in before.items()}
    members = {bound[1] for bound in project.state()["policies"]["projects"]["our-project"]}
    assert members == {f"serviceAccount:{account}"}


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--project P", "--project 'P' is not the id of a project"),
        ("--project another-project", "project another-project cannot be read"),
        ("--production our-production --production-bucket no-such", "no bucket gs://no-such"),
    ],
)
def test_mistake_is_told_first(project, flags, complaint):
    assert f"error: {complaint}" in project.setup(flags, code=2)
    assert not project.changes()


def test_each_role_serves_some_need(project):
    """All needs of the accounts are met; without any one role some need is not."""
    project.setup("--tensorboard")
    bindings = project.bindings()
    needs = [
        (account, *line.partition(" ")[::2])
        for accounts in NEEDS.values()
        for account, lines in accounts.items()
        if account != "you"
        for line in lines
    ]

    def unmet(bindings):
        return [need for need in needs if not allows(bindings, *_resolved(*need))]

    assert not unmet(bindings)
    assert not [bound for bound in bindings if not unmet([b for b in bindings if b != bound])]
    named = {(name.split()[0], row[1]) for row in calls() for name in row[3].split(", ")}
    assert {(account, permission) for account, permission, _ in needs} <= named


def _resolved(account, permission, place):
    """Returns account, permission, resource and object's name of a need of our-project."""
    email = "training-{}@our-project.iam.gserviceaccount.com"
    resources = {
        "storage": BUCKET,
        "iam": email.format(place),
        "artifactregistry": f"our-project/{place or 'training'}",
    }
    resource = resources.get(permission.split(".")[0], "projects/our-project")
    return email.format(account), permission, resource, f"{place}/a"


def test_only_pipeline_replaces_models(first):
    may = {
        f"{account} {folder}"
        for account in ("build", "pipeline", "train")
        for folder in ("models", "specs", "runs")
        if allows(first[0].bindings(), *_resolved(account, "storage.objects.delete", folder))
    }
    pipelines = {"pipeline models", "pipeline specs", "pipeline runs"}
    assert may == {"build specs", "build runs", "train runs", *pipelines}


def test_only_releases_submit_in_production(made):
    members = {member for resource, _, member, _ in made.bindings() if "our-production" in resource}
    assert members == {"serviceAccount:training-release@our-project.iam.gserviceaccount.com"}

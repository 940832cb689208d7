"""Cloud Build's files, and steps that need no engine; tests/docker runs some that do."""

import re

import pytest
import yaml

from tests.deploy.build_file import ROOT, BuildFile, refusals
from tests.programs import install

BUILDS = sorted(path.relative_to(ROOT) for path in (ROOT / "deploy/builds").iterdir())
FILES = ["cloudbuild.yaml", *map(str, BUILDS)]
TRIGGERS = sorted((ROOT / "deploy/triggers").iterdir())
ACCOUNTS = (
    "--service-account training-pipeline@my-project.iam.gserviceaccount.com "
    "--set training_service_account=training-train@my-project.iam.gserviceaccount.com"
)


def build(**values):
    return BuildFile(path="cloudbuild.yaml", values={"_BUCKET": "b", **values})


@pytest.mark.parametrize("path", FILES)
def test_build_is_accepted_as_it_is(path):
    content = BuildFile(path=path).content
    assert not [*refusals(content, {})]
    for name in content["substitutions"]:  # Each is used.
        used = str({**content, "substitutions": {}})
        assert re.search(rf"\$\{{?{name}\b", used), name


@pytest.mark.parametrize("path", TRIGGERS, ids=lambda path: path.stem)
def test_trigger_sets_what_build_has(path):
    trigger = yaml.safe_load(path.read_text())
    declared = BuildFile(path=trigger["filename"]).content["substitutions"]
    assert trigger["substitutions"].keys() <= declared.keys()
    assert trigger["name"] == f"training-{path.stem}"
    account = r"projects/@PROJECT@/serviceAccounts/training-\w+@@PROJECT@.iam.gserviceaccount.com"
    assert re.fullmatch(account, trigger["serviceAccount"])


def test_pull_request_keeps_nothing():
    steps, check = build().content["steps"], BuildFile(path="deploy/builds/check.yaml").content
    assert check["steps"] == [step for step in steps if step["id"] in ("test", "build", "smoke")]
    assert not {"images", "artifacts"} & set(check)
    trigger = yaml.safe_load((ROOT / "deploy/triggers/pull-request.yaml").read_text())
    assert "/training-check@" in trigger["serviceAccount"]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"_BUCKET": "my-bucket.example_1", "_UNTIL": "verdict", "_ACCELERATOR": "gpu"}, ""),
        ({"_BUCKET": "gs://my-bucket"}, "_BUCKET is 'gs://my-bucket'"),
        ({"_UNTIL": "train"}, "_UNTIL is 'train'; allowed: push, submit, verdict"),
    ],
)
def test_bad_settings_stop_build(tmp_path, values, complaint):
    done = build(**values).step("settings", tmp_path)
    assert done.returncode == (2 if complaint else 0) and complaint in done.stdout


def test_push_waits_for_tests():
    waits = {step["id"]: step.get("waitFor") for step in build().content["steps"]}
    assert waits["push"] == ["settings", "test", "smoke"] and waits["smoke"] == ["build"]
    assert waits["submit"] is None  # It waits for all before it.


OTHERS = {
    "_CONFIG": "c.yaml",
    "_CLUSTER": "STANDARD_1",
    "_DATASET": "mnist",
    "_SOURCE": "gs://b/x gs://b/*",
    "_GATE": "gates/default.yaml",
    "_FLAGS": "--train-steps 9 -- --momentum 0.9",
}
FLAGS = (
    "--config c.yaml --cluster STANDARD_1 --dataset mnist --source gs://b/x gs://b/* "
    "--gate gates/default.yaml --dry-run --train-steps 9 -- --momentum 0.9"
)


@pytest.mark.parametrize(
    ("values", "flags"),
    [
        ({}, f"{ACCOUNTS} --dry-run"),
        ({"_UNTIL": "submit"}, f"{ACCOUNTS} --yes"),
        ({"_UNTIL": "verdict"}, f"{ACCOUNTS} --yes --wait --fail-on-reject"),
        (OTHERS, FLAGS),  # The accounts are those of the config.
        (
            {"_SERVICE_ACCOUNT": "p@x", "_TRAINING_ACCOUNT": "t@x"},
            "--service-account p@x --set training_service_account=t@x --dry-run",
        ),
    ],
    ids=["push", "submit", "verdict", "all settings", "accounts"],
)
def test_substitutions_become_flags(tmp_path, values, flags):
    """A Python that prints its arguments gets the flags, and its exit code is the build's."""
    install(tmp_path / ".venv/bin/python", '#!/bin/sh\nprintf "%s\\n" "$@"\nexit 3\n')
    (tmp_path / "build").mkdir()
    (tmp_path / "build/image.txt").write_text("r/i@sha256:0\n")
    done = build(**values).step("submit", tmp_path)
    place = "--project my-project --location us-central1 --bucket gs://b"
    expected = f"pipelines/submit.py --image r/i@sha256:0 {place} {flags}"
    assert (done.returncode, done.stdout.split()) == (3, expected.split())

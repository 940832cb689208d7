"""Cloud Build's files: their form, and the shell of steps that needs no container engine (tests/docker runs all in order)."""

import re

import pytest
import yaml

from tests.deploy.build_file import BUILTIN, ROOT, BuildFile

FILES = [
    "cloudbuild.yaml",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "deploy/builds").iterdir())),
]
TRIGGERS = sorted((ROOT / "deploy/triggers").iterdir())
ACCOUNTS = (
    "--service-account training-pipeline@my-project.iam.gserviceaccount.com "
    "--set training_service_account=training-train@my-project.iam.gserviceaccount.com"
)
MAIN = BuildFile(path="cloudbuild.yaml", values={"_BUCKET": "b"})


@pytest.mark.parametrize("path", [*FILES, *TRIGGERS])
def test_the_api_itself_reads_every_file(path):
    api = pytest.importorskip(
        "google.cloud.devtools.cloudbuild_v1", reason="needs the package google-cloud-build"
    )
    from google.protobuf import json_format

    kind = api.BuildTrigger if path in TRIGGERS else api.Build
    message = json_format.ParseDict(
        yaml.safe_load((ROOT / path).read_text()), kind.pb(kind())
    )  # refuses unknown fields
    assert message.name if path in TRIGGERS else message.steps


@pytest.mark.parametrize("path", FILES)
def test_every_substitution_is_declared_and_used(path):
    content = BuildFile(path=path).content
    declared = set(content.pop("substitutions"))
    for step in content["steps"]:
        step.pop("script", None)  # has variables of the shell
    assert set(re.findall(r"\$\{?(\w+)", str(content))) - set(BUILTIN) == declared


@pytest.mark.parametrize("path", TRIGGERS, ids=lambda path: path.stem)
def test_triggers_set_what_their_build_has(path):
    trigger = yaml.safe_load(path.read_text())
    assert set(trigger["substitutions"]) <= set(
        BuildFile(path=trigger["filename"]).content["substitutions"]
    )
    assert trigger["name"] == f"training-{path.stem}"


def test_a_pull_request_takes_the_steps_that_keep_nothing_and_an_account_that_may_nothing():
    steps, check = MAIN.content["steps"], BuildFile(path="deploy/builds/check.yaml").content
    assert check["steps"] == [step for step in steps if step["id"] in ("test", "build", "smoke")]
    assert not {"images", "artifacts"} & set(check) and "push" not in str(check["steps"])
    trigger = yaml.safe_load((ROOT / "deploy/triggers/pull-request.yaml").read_text())
    assert "/training-check@" in trigger["serviceAccount"]


@pytest.mark.parametrize(
    "values",
    [
        {"_BUCKET": "my-bucket.example_1"},
        {"_BUCKET": "b", "_UNTIL": "verdict", "_ACCELERATOR": "gpu"},
    ],
)
def test_good_settings_pass(tmp_path, values):
    assert (
        BuildFile(path="cloudbuild.yaml", values=values).step("settings", tmp_path).returncode == 0
    )


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({}, "_BUCKET is ''"),
        ({"_BUCKET": "gs://my-bucket"}, "_BUCKET is 'gs://my-bucket'"),
        ({"_BUCKET": "b", "_UNTIL": "train"}, "_UNTIL is 'train'; allowed: push, submit, verdict"),
        ({"_BUCKET": "b", "_ACCELERATOR": "tpu"}, "_ACCELERATOR is 'tpu'; allowed: cpu, gpu"),
    ],
)
def test_bad_settings_stop_the_build_before_anything_is_kept(tmp_path, values, complaint):
    done = BuildFile(path="cloudbuild.yaml", values=values).step("settings", tmp_path)
    assert done.returncode == 2 and complaint in done.stdout


def test_nothing_is_pushed_before_tests_and_smoke_test_have_passed():
    waits = {step["id"]: step.get("waitFor") for step in MAIN.content["steps"]}
    assert waits["push"] == ["settings", "test", "smoke"] and waits["smoke"] == ["build"]
    # The others wait for all before them.
    assert [name for name, ids in waits.items() if ids is None] == ["compile", "store", "submit"]


@pytest.fixture
def workspace(tmp_path):
    """What the steps before leave, with a Python that says how it was called, and ends with what it finds in CODE."""
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit ${CODE:-0}\n')
    python.chmod(0o755)
    (tmp_path / "build").mkdir()
    (tmp_path / "build/image.txt").write_text("r/i@sha256:0\n")
    return tmp_path


@pytest.mark.parametrize(
    ("values", "flags"),
    [
        ({}, f"{ACCOUNTS} --dry-run"),
        ({"_UNTIL": "submit"}, f"{ACCOUNTS} --yes"),
        ({"_UNTIL": "verdict"}, f"{ACCOUNTS} --yes --wait --fail-on-reject"),
        (
            {"_CONFIG": "c.yaml", "_CLUSTER": "STANDARD_1", "_DATASET": "mnist", "_SOURCE": "gs://b/x gs://b/*", "_GATE": "gates/default.yaml", "_SERVICE_ACCOUNT": "p@x", "_TRAINING_ACCOUNT": "t@x",
             "_FLAGS": "--train-steps 9 -- --momentum 0.9"},
            "--config c.yaml --cluster STANDARD_1 --dataset mnist --source gs://b/x gs://b/* "
            "--gate gates/default.yaml --service-account p@x --set training_service_account=t@x "
            "--dry-run --train-steps 9 -- --momentum 0.9",
        ),
    ],
    ids=["push", "submit", "verdict", "all settings"],
)  # fmt: skip
def test_substitutions_become_flags(workspace, values, flags):
    done = BuildFile(path="cloudbuild.yaml", values={"_BUCKET": "b", **values}).step(
        "submit", workspace
    )
    expected = (
        "pipelines/submit.py --image r/i@sha256:0 --project my-project --location "
        "us-central1 --bucket gs://b"
    )
    assert done.stdout.split() == f"{expected} {flags}".split()


def test_accounts_of_a_config_stay(workspace):
    build = BuildFile(path="cloudbuild.yaml", values={"_BUCKET": "b", "_CONFIG": "c.yaml"})
    assert "@" not in build.step("submit", workspace).stdout.replace("r/i@sha256", "")


def test_every_push_to_main_is_built():
    main = yaml.safe_load((ROOT / "deploy/triggers/main.yaml").read_text())
    assert not {"ignoredFiles", "includedFiles"} & set(main), (
        "a tag may be on a commit that changes pages only"
    )


def test_a_rejected_model_fails_the_build(workspace):
    build = BuildFile(path="cloudbuild.yaml", values={"_BUCKET": "b", "_UNTIL": "verdict"})
    assert build.step("submit", workspace, CODE="3").returncode == 3

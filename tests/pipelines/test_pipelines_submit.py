import contextlib
from unittest import mock

import pytest
import requests
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import DefaultCredentialsError, TransportError
from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from components.train.backends.attempts import first_attempt
from pipelines import submit
from pipelines.cloud_options import KEYS
from pipelines.vertex import checks, client
from pipelines.vertex.submission import Submission, prepare
from tests.cloud.collection import now
from tests.errors import user_error

IMAGE = "us-docker.pkg.dev/p/r/i@sha256:" + "a" * 64
GIVEN = ("--image", IMAGE)
PLACE = ("--project", "demo-project", "--bucket", "gs://my-bucket")
PS = ("--cluster", "clusters/vertex-ps.yaml")
NETWORK = ("--set", "network=projects/1/global/networks/n")


def prepared(*flags):
    return prepare(KEYS.read(submit._parser().parse_args([*PLACE, *GIVEN, *flags])))


def request(submission):
    return submission.request("a", first_attempt([], submission.bounds))


def test_each_submission_sends_its_image():
    submissions = [prepared("--image", image) for image in (IMAGE, IMAGE.replace("aa", "bb"))]
    for submission in submissions:
        executors = request(submission)["pipelineJob"]["pipelineSpec"]["deploymentSpec"][
            "executors"
        ]
        assert executors["exec-evaluate"]["container"]["image"] == submission.image


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--project", "Not_A_Project"], "give one such as my-project"),
        (["--cluster", "clusters/local-ps.yaml"], "Vertex needs a machine type"),
        (["--dataset", "mnist", "--source", "data"], "upload it and give gs://BUCKET/DIR"),
        (["--set", "step_resources=train=8:8G"], "'train=8:8G' is not STEP"),
        (["--fail-on-reject"], "--fail-on-reject needs --wait"),
    ],
)
def test_mistake_is_refused_before_asking(flags, message):
    with (
        mock.patch("google.auth.default", side_effect=AssertionError),
        user_error(message),
    ):
        submit.main([*PLACE, *GIVEN, *flags])


MODEL_NEEDED = "the image has to have the module mine"


@pytest.mark.parametrize(
    ("flags", "needed"),
    [
        ([*PLACE, *GIVEN, *PS, "--model=mine:net"], MODEL_NEEDED),
        (["--dataset=mnist", "--source=gs://b/mnist"], "--project, --bucket, --image not given"),
    ],
)
def test_dry_run_names_what_is_needed(flags, needed, monkeypatch, capsys):
    """It needs no account."""
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    with mock.patch("google.auth.default", side_effect=AssertionError):
        assert submit.main([*flags, "--dry-run"]) == 0
    shown = capsys.readouterr().err
    assert needed in shown and "machine-hours (" in shown
    assert (MODEL_NEEDED in shown) == (needed == MODEL_NEEDED)


def test_run_can_be_sent_again(bucket):
    submission = prepared(
        "--bucket=gs://demo", "--set", "step_resources=convert=8:32G", *NETWORK, "--set=labels=a=b"
    )
    submission.save()
    again = Submission.load("gs://demo", submission.run)
    assert request(again) == request(submission)
    with user_error("--resume other: no such run in gs://demo"):
        Submission.load("gs://demo", "other")


HTML = b"<html>"


@pytest.mark.parametrize(
    ("answer", "is_refused"),
    [
        ((404, HTML), True),
        ((403, {"error": {"message": 7}}), True),
        ((200, HTML), False),
        ((503, HTML), False),
        (requests.Timeout(), False),
        (TransportError(), False),
    ],
)
def test_only_definite_answers_refuse(answers, capsys, answer, is_refused):
    answers[""] = answer
    with pytest.raises(UserError) if is_refused else contextlib.nullcontext():
        checks.check_access(prepared())
    assert ("warning: not checked, as " in capsys.readouterr().err) is not is_refused


def test_missing_image_is_named(answers):
    answers[IMAGE.partition("@")[2]] = 404, {}
    with user_error(r"no image us-docker.pkg.dev/p/r/i@.*; build and push it"):
        checks.check_access(prepared())


def test_missing_login_names_command():
    missing = mock.patch("google.auth.default", side_effect=DefaultCredentialsError("none"))
    with missing, user_error("run: gcloud auth application-default login"):
        submit.main([*PLACE, *GIVEN, "--yes"])


RUN, TRAIN = (f"{name}@p.iam.gserviceaccount.com" for name in ("run", "train"))
UNSEEN = f"warning: the policies that you may read do not show whether {RUN} may act as {TRAIN}; "
NONE = (200, {})


def policy(role):
    members = ["user:a@b.c", f"serviceAccount:{RUN}"]
    return 200, {"bindings": [{"role": role, "members": members}]}


@pytest.mark.parametrize(
    ("own", "project", "problem"),
    [
        (policy("roles/iam.serviceAccountUser"), NONE, ""),
        ((403, {}), policy("roles/editor"), ""),
        (NONE, policy("roles/viewer"), UNSEEN),
        ((404, {}), NONE, f"no service account {TRAIN}"),
    ],
)
def test_training_account_is_checked_by_policies(answers, capsys, own, project, problem):
    answers |= {f"{TRAIN}:getIamPolicy": own, "demo-project:getIamPolicy": project}
    account = f"training_service_account={TRAIN}"
    try:
        checks.check_access(prepared("--service-account", RUN, "--set", account))
        outcome = capsys.readouterr().err
    except UserError as error:
        outcome = str(error)
    assert problem in outcome if problem else not outcome


def test_training_acts_as_run_does():
    assert prepared("--service-account", RUN).settings.training_service_account == RUN


OURS = {"managed_by": "tfrecord-training"}
LABELS = [OURS, OURS | {"run": "r1"}, {}, {"run": "r1"}, {"managed_by": "others", "run": "r1"}]
NAMES = st.sampled_from(["7", "17", "r1", "r1-2", "x-r1"])
KINDS = st.sampled_from(["pipelineJobs", "customJobs"])


@given(
    st.dictionaries(st.tuples(KINDS, NAMES), st.sampled_from(LABELS), min_size=1),
    NAMES,
)
def test_cancel_ends_what_is_named(vertex, monkeypatch, things, name):
    """Exactly pipeline jobs of ours end: those of that run, and the one of that name."""
    monkeypatch.setattr(client, "credentials", AnonymousCredentials)
    aiplatform.init(location="europe-west4")  # The region of the command counts.
    vertex.pipeline_jobs.items, vertex.custom_jobs.items = {}, {}
    named = set()
    for (kind, number), labels in things.items():
        is_run = kind == "pipelineJobs"
        path = f"{vertex.parent}/{kind}/{number}"
        items = (vertex.pipeline_jobs if is_run else vertex.custom_jobs).items
        job = {"name": path, "display_name": "r1", "labels": labels, "create_time": now()}
        items[path] = (v1.PipelineJob if is_run else v1.CustomJob)(**job)
        if is_run and labels.items() >= OURS.items() and name in (number, labels.get("run")):
            named.add(path)
    refusal = user_error(f"--cancel {name}: no live run")
    with contextlib.nullcontext() if named else refusal:
        assert submit.main(["--project", vertex.project, "--cancel", name]) == 0
    items = vertex.pipeline_jobs.items | vertex.custom_jobs.items
    assert {path for path, item in items.items() if "CANCELLED" in item.state.name} == named

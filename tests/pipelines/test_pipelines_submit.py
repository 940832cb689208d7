import contextlib
import io
import json
from typing import Any
from unittest import mock

import pytest
import requests
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import TransportError
from google.cloud import aiplatform_v1 as v1
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lint.specs import lint

from common.errors import UserError
from components.convert.options import Options
from components.train.backends.attempts import first_attempt
from pipelines import submit
from pipelines.cloud_options import KEYS
from pipelines.vertex import checks, client
from pipelines.vertex.submission import Submission, prepare
from tests.cloud.collection import now

IMAGE = "us-docker.pkg.dev/p/r/i@sha256:" + "a" * 64
REGION = "projects/p/locations/us-central1"
NETWORK = "projects/1/global/networks/n"


def prepared(*flags: str) -> Submission:
    args = submit._parser().parse_args(
        ["--project", "demo-project", "--bucket", "gs://my-bucket", *flags]
    )
    return prepare(KEYS.read(args))


def request(submission: Submission) -> dict[str, Any]:
    return submission.request("a", first_attempt([], submission.bounds))


def test_a_query_reaches_its_step_as_it_is_and_is_exported_to_the_bucket(tmp_path):
    (schema := tmp_path / "schema.yaml").write_text(
        "{name: trips, origin: o, columns: {fare: {type: float}, tip: {type: float}}, label: "
        "{regression: tip},"
        " deep: [{column: fare, numeric: z_score}]}"
    )
    query = "SELECT fare, tip FROM `p.d.t`"
    made = prepared(
        "--dataset", "bigquery", "--schema", str(schema), "--image", IMAGE, "--source", query
    )
    assert made.values["name"] == "trips"
    told = Options.parse(made.values["convert_args"], "step", output="-")
    assert (told.source, told.export_dir) == (query, "gs://my-bucket/exports")


def test_what_is_sent_is_what_the_dry_run_shows(vertex, capsys):
    flags = ["--project", "demo-project", "--bucket", "gs://my-bucket", "--image", IMAGE]
    flags += ["--set", f"network={NETWORK}"]
    assert submit.main([*flags, "--cluster", "clusters/vertex-ps.yaml", "--dry-run"]) == 0
    shown = json.loads(capsys.readouterr().out)
    submission = prepared(*flags[4:], "--cluster", "clusters/vertex-ps.yaml")
    name = client.send(submission, submission.run, first_attempt([], submission.bounds))
    sent = v1.PipelineJob.to_json(vertex.pipeline_jobs.items[name])
    again = v1.PipelineJob.from_json(
        json.dumps(shown["pipelineJob"]).replace(shown["pipelineJobId"], submission.run)
    )
    for field in ("display_name", "pipeline_spec", "labels", "runtime_config", "network"):
        assert getattr(v1.PipelineJob.from_json(sent), field) == getattr(again, field), field
    assert shown["parent"] == "projects/demo-project/locations/us-central1"


def test_each_of_two_submissions_at_once_sends_its_own_image_and_has_none_of_the_traps():
    submissions = [prepared("--image", image) for image in (IMAGE, IMAGE.replace("aa", "bb"))]
    for submission in submissions:
        spec = request(submission)["pipelineJob"]["pipelineSpec"]
        assert (
            spec["deploymentSpec"]["executors"]["exec-evaluate"]["container"]["image"]
            == submission.image
        )
        assert lint(spec) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--project", "Not_A_Project"], "give one such as my-project"),
        (["--bucket", "my-bucket"], "give one such as gs://my-bucket"),
        ([], "--image is missing"),
        (["--image", IMAGE, "--name", "Bad Name!"], "model name 'Bad Name!'"),
        (
            ["--image", IMAGE, "--set", "predict=gs://b/rows.csv"],
            "reads JSON lines; give gs://BUCKET/NAME.jsonl",
        ),
        (["--image", "r/i:tag"], "--image r/i:tag: give one such as .*@sha256:0"),
        (["--image", IMAGE, "--cluster", "clusters/local-ps.yaml"], "Vertex needs a machine type"),
        (
            ["--image", IMAGE, "--dataset", "mnist", "--source", "data"],
            "upload it and give gs://BUCKET/DIR",
        ),
        (["--image", IMAGE, "--", "--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["--image", IMAGE, "--set", "timeout=soon"], "'soon' is not a duration"),
        (["--image", IMAGE, "--set", "step_resources=convert=8"], "is not STEP=CPUS:MEMORY"),
        (["--image", IMAGE, "--set", "step_resources=train=8:8G"], "'train=8:8G' is not STEP"),
        (
            ["--image", IMAGE, "--set", f"tensorboard={REGION}/tensorboards/1"],
            "needs training_service_account",
        ),
        (["--image", IMAGE, "--fail-on-reject"], "--fail-on-reject needs --wait"),
    ],
)
def test_what_cannot_work_is_refused_before_anybody_is_asked(flags, message):
    with (
        mock.patch("google.auth.default", side_effect=AssertionError),
        pytest.raises(UserError, match=message),
    ):
        submit.main(["--project", "demo-project", "--bucket", "gs://my-bucket", *flags])


def test_synchronous_training_drops_the_parameter_servers_as_everywhere(capsys):
    values = prepared(
        "--image", IMAGE, "--cluster", "clusters/vertex-ps.yaml", "--", "--sync"
    ).values
    cluster = json.loads(values["cluster"])
    assert cluster["strategy"] == "multi_worker_mirrored" and "ps" not in cluster
    assert "--sync" not in values["trainer_args"] and "--deterministic" in values["trainer_args"]
    assert (
        "replaced: clusters/vertex-ps.yaml: --sync: the parameter servers are dropped"
        in capsys.readouterr().err
    )


def test_the_dry_run_needs_no_account_and_says_what_stands_in(monkeypatch, capsys):
    for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    with mock.patch("google.auth.default", side_effect=AssertionError):
        assert (
            submit.main(["--dry-run", "--dataset", "mnist", "--source", "gs://somewhere/mnist"])
            == 0
        )
    told = capsys.readouterr()
    assert "--project, --bucket, --image not given" in told.err
    assert json.loads(told.out)["parent"] == "projects/my-project/locations/us-central1"


def test_run_can_be_sent_again(bucket):
    settings = [
        "--set",
        "step_resources=convert=8:32G",
        "--set",
        f"network={NETWORK}",
        "--set",
        "labels=a=b",
    ]
    submission = prepared("--image", IMAGE, "--bucket", "gs://demo", *settings)
    submission.save()
    again = Submission.load("gs://demo", submission.run)
    assert request(again) == request(submission)
    with pytest.raises(UserError, match="--resume other: no such run in gs://demo"):
        Submission.load("gs://demo", "other")


def response(status: int, content: bytes) -> requests.Response:
    made = requests.Response()
    made.status_code, made.raw = status, io.BytesIO(content)
    return made


@pytest.mark.parametrize(
    "answer", [403, 404, 200, 408, 429, 503, requests.Timeout(), TransportError()]
)
def test_only_definite_answers_refuse(monkeypatch, capsys, answer):
    def request(*_, **__):
        if isinstance(answer, Exception):
            raise answer
        return response(answer, b"<html>")

    monkeypatch.setattr("google.auth.transport.requests.AuthorizedSession.request", request)
    monkeypatch.setattr(checks, "credentials", AnonymousCredentials)
    with pytest.raises(UserError) if answer in (403, 404) else contextlib.nullcontext():
        checks.check_access(
            prepared("--image", IMAGE, "--service-account", "a@p.iam.gserviceaccount.com")
        )
    assert ("warning: not checked, as " in capsys.readouterr().err) is (answer not in (403, 404))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"error": {"message": "not\\nfor you"}}', "not for you"),
        *(
            (text, "HTTP status 403")
            for text in ("[]", "7", "{}", '{"error": "no"}', '{"error": {"message": 7}}', "<html>")
        ),
    ],
)
def test_refusal_is_one_line(monkeypatch, content, message):
    request = "google.auth.transport.requests.AuthorizedSession.request"
    monkeypatch.setattr(request, lambda *_, **__: response(403, content.encode()))
    monkeypatch.setattr(checks, "credentials", AnonymousCredentials)
    assert checks.Asker()("https://host/path") == (403, {"message": message})


RUN, TRAIN = (f"{name}@p.iam.gserviceaccount.com" for name in ("run", "train"))
UNSEEN = (
    f"warning: the policies that you may read do not show whether {RUN} may act as {TRAIN}; if not"
)


def policy(role: str, member: str) -> tuple[int, Any]:
    return 200, {"bindings": [{"role": role, "members": ["user:a@b.c", member]}]}


BOUND, NONE = policy("roles/iam.serviceAccountUser", f"serviceAccount:{RUN}"), (200, {})


@pytest.mark.parametrize(
    ("own", "project", "problem"),
    [
        (BOUND, NONE, ""),
        (NONE, BOUND, ""),
        ((403, {}), BOUND, ""),
        (NONE, NONE, UNSEEN),
        ((403, {}), NONE, UNSEEN),
        (policy("roles/editor", "serviceAccount:other@b.c"), NONE, UNSEEN),
        (NONE, policy("roles/viewer", f"serviceAccount:{RUN}"), UNSEEN),
        ((404, {}), None, f"no service account {TRAIN}"),
    ],
)
def test_training_account_is_checked_by_policies(monkeypatch, capsys, own, project, problem):
    answers = {f"{TRAIN}:getIamPolicy": own, "demo-project:getIamPolicy": project}
    verbs = ("create", "get", "list", "delete")
    every = {
        "location": "us-central1",
        "permissions": [f"storage.objects.{verb}" for verb in verbs],
    }

    def request(session, method, url, **_):
        status, content = answers.get(url.rpartition("/")[2], (200, every))
        return response(status, json.dumps(content).encode())

    monkeypatch.setattr("google.auth.transport.requests.AuthorizedSession.request", request)
    monkeypatch.setattr(checks, "credentials", AnonymousCredentials)
    try:
        checks.check_access(
            prepared(
                "--image",
                IMAGE,
                "--service-account",
                RUN,
                "--set",
                f"training_service_account={TRAIN}",
            )
        )
        outcome = capsys.readouterr().err
    except UserError as error:
        outcome = str(error)
    assert problem in outcome if problem else not outcome


_OURS = {"managed_by": "tfrecord-training"}
_names = st.sampled_from(["7", "17", "r1", "r1-2", "x-r1"])
_labels = st.sampled_from(
    [_OURS, _OURS | {"run": "r1"}, {}, {"run": "r1"}, {"managed_by": "others", "run": "r1"}]
)
_kinds = st.sampled_from(["pipelineJobs", "customJobs"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.tuples(_kinds, _names), _labels, min_size=1), _names)
def test_cancel_ends_what_is_named(vertex, monkeypatch, things, name):
    """Exactly pipeline jobs of ours change: those of that run, and the one of that name."""
    monkeypatch.setattr("pipelines.vertex.client.connect", lambda *_: None)  # the fixture has
    collections = {"pipelineJobs": vertex.pipeline_jobs, "customJobs": vertex.custom_jobs}
    for collection in collections.values():
        collection.items = {}
    for (kind, number), labels in things.items():
        about = {"name": f"{vertex.parent}/{kind}/{number}", "create_time": now()}
        job_type = v1.PipelineJob if kind == "pipelineJobs" else v1.CustomJob
        thing = job_type(display_name="r1", labels=labels, **about)
        collections[kind].items[thing.name] = thing

    def state() -> dict[str, str]:
        return {
            each: str(item)
            for collection in collections.values()
            for each, item in collection.items.items()
        }

    jobs = {each: labels for each, labels in things.items() if each[0] == "pipelineJobs"}
    ours = {
        each: labels
        for each, labels in jobs.items()
        if labels.get("managed_by") == _OURS["managed_by"]
    }
    named = {each for each, labels in ours.items() if name in (each[1], labels.get("run"))}
    before = state()
    with (
        contextlib.nullcontext()
        if named
        else pytest.raises(UserError, match=f"--cancel {name}: no live run")
    ):
        assert submit.main(["--project", vertex.project, "--cancel", name]) == 0
    after = state()
    changed = {each for each in before if before[each] != after.get(each)}
    assert changed == {f"{vertex.parent}/{kind}/{number}" for kind, number in named}

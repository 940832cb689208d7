"""The spec for Kubeflow Pipelines runs here, but for its back end, and is sent to a server."""

import contextlib
import json
import pathlib

import pytest

from common.errors import UserError
from pipelines import submit
from tests.cloud.conftest import IMAGE
from tests.cloud.front import Answer, Front
from tests.programs import run_python
from trainer.job import done

RUN = """
import json, sys
from kfp import components, local
spec, root, values = sys.argv[1:]
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=root, enable_caching=False)
components.load_component_from_file(spec)(**json.loads(values))
"""


@contextlib.contextmanager
def server(states):
    """Serves the API of Kubeflow Pipelines. Yields its URL and the requests.

    A run has each of the states once; an empty one stands for a server that is away.
    """
    requests, states = [], iter(states)

    def answer(request):
        requests.append(request)
        if "/runs" not in request.path:
            experiment = {"experiment_id": "e1", "display_name": "Default"}
            return Answer(200, {"experiments": [experiment]})
        state = "PENDING" if request.method == "POST" else next(states)
        return Answer(200 if state else 503, {"run_id": "r1", "state": state})

    with Front(0, answer) as serving:
        yield f"http://localhost:{serving.server_port}", requests
        serving.shutdown()


@pytest.fixture
def flags(monkeypatch):
    monkeypatch.setattr("pipelines.kubeflow.POLL_S", 0.01)
    return ["--claim=data:/mnt/data", "--image=r/i@sha256:1", "--cluster=clusters/local.yaml"]


@pytest.mark.parametrize(
    ("states", "code"), [(["RUNNING", "", "SUCCEEDED"], 0), (["FAILED"], 1), (["CANCELED"], 1)]
)
def test_run_is_started_and_awaited(flags, states, code, capsys):
    more = ["--wait", "--set", "kfp_client=[namespace=team]", "--set"]
    with server(states) as (url, requests):
        host = f"--kfp-host={url}"
        assert submit.main([host, *flags, *more, "train_args=--namespace team"]) == code
    sent = json.loads(next(each.body for each in requests if each.method == "POST"))
    values = sent["runtime_config"]["parameters"]
    own = f"/mnt/data/runs/{sent['display_name']}/job"
    assert (values["job_dir"], values["registry"]) == (own, "/mnt/data/registry")
    launcher = ["--backend=kubernetes", "--image=r/i@sha256:1", "--claim=data:/mnt/data"]
    assert values["train_args"] == [*launcher, "--namespace", "team"]
    assert {*sent["pipeline_spec"]} == {"pipeline_spec", "platform_spec"}
    printed = capsys.readouterr().out
    assert f"{url}/#/runs/details/r1" in printed
    assert printed.endswith(f"\n{sent['display_name']}: {states[-1].lower()}\n")


def test_bucket_replaces_claim(monkeypatch, capsys):
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    place = ["--location=europe-west4", "--bucket=gs://abc"]
    submit.main(["--kfp-host=http://x", "--dry-run", *place, f"--image={IMAGE}"])
    values = json.loads(capsys.readouterr().out)
    assert values["job_dir"] == f"gs://abc/runs/{values['run_id']}/job"
    assert values["dataset_dir"] == "gs://abc/datasets"
    assert values["registry"] == "vertex://my-project/europe-west4"
    assert values["train_args"] == ["--backend=kubernetes", f"--image={IMAGE}"]


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ([], UserError, "--claim is missing"),
        (["--list", "--claim=a:/a", "--bucket=gs://a"], UserError, "list, bucket: no use with"),
        (["--claim=a:/a", "--set=train_args=a 'b"], UserError, 'train_args "a \'b": No closing'),
        (["--claim=a:/a", "--set=kfp_client=[b=c]"], UserError, "unexpected keyword argument 'b'"),
        (["--claim=a:/a"], ConnectionError, "--kfp-host http://localhost:1: "),
    ],
)
def test_mistake_is_named(words, error, message, monkeypatch):
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    with pytest.raises(error, match=message):
        submit.main(["--kfp-host=http://localhost:1", *words])


def run_here(spec, values, root, code=0):
    """Runs a spec with arguments by kfp.local, with artifacts below `root`."""
    return run_python("-c", RUN, spec, root, json.dumps(values), code=code)


@pytest.mark.pipeline
def test_compiled_spec_runs_here(flags, capsys, tmp_path):
    """Steps hand on all they need as parameters, and a failed training fails the run."""
    run_python("pipelines/compile.py", "--output-dir", tmp_path, *flags)
    flags[0] = f"--claim=data:{tmp_path}"
    flags += ["--dry-run", "--train-steps=20", "--set", "train_args=--backend process"]
    submit.main(["--kfp-host=http://x", *flags])
    values = json.loads(capsys.readouterr().out)
    values["job_dir"] = f"{tmp_path}/runs"  # The spec is for many runs.
    spec = tmp_path / "training-kubeflow.yaml"
    run_here(spec, values, tmp_path / "artifacts")
    [job] = tmp_path.glob("runs/*/job")
    assert done.load(job).step == 20 and (job / "evaluation.json").exists()
    assert (tmp_path / "registry/digits/1/version.json").exists()
    assert not list(pathlib.Path(tmp_path, "artifacts").rglob("*.tfrecord"))
    values["train_args"] = ["--backend=none"]
    assert "Inner task failed" in run_here(spec, values, tmp_path / "artifacts", code=1)

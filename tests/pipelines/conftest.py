import io
import json

import pytest
import requests
from google.auth.credentials import AnonymousCredentials

from pipelines.local.record import RunRecord
from pipelines.run import DATASETS
from pipelines.vertex import checks


@pytest.fixture
def make(tmp_path):
    """Makes the directory of a run; `status` is that of its summary, if it has one."""

    def make(name, status="succeeded", accuracy=0.5, **job):
        run = tmp_path / "runs" / name
        (run / "job").mkdir(parents=True)
        arguments = {
            "run_dir": str(run),
            "job_dir": str(run / "job"),
            "dataset_dir": str(run.parent / DATASETS / "d1"),
            "name": "digits",
            "evaluate_args": [],
            "cluster": "{}",
            "schema": "",
            "trainer_args": ["--seed=1"],
            "convert_args": [],
        }
        facts = {"runner": "subprocess", "image": "python", "dataset": "digits"}
        RunRecord(id=name, arguments=arguments, cluster="clusters/local.yaml", **facts).save()
        if status:
            summary = {
                "status": status,
                "seconds": 2.5,
                "metrics": {"accuracy": accuracy},
                "steps": [{"name": "train", "status": "succeeded", "seconds": 1.0}],
                "model": {"name": "digits", "version": "1", "verdict": "promote"},
            }
            (run / "summary.json").write_text(json.dumps(summary))
            (run / "evaluation.json").write_text('{"metric": "accuracy"}')
        if job:
            (run / "job" / "job.json").write_text(json.dumps(job))
        return run

    return make


@pytest.fixture
def answers(monkeypatch):
    """Returns Google Cloud's answers by URL or its end, and by "" to all others."""
    permissions = [*checks._WRITES]
    answers = {"": (200, {"location": "us-central1", "permissions": permissions})}

    def request(session, method, url, **_):
        url = url.partition("?")[0]
        keys = (url, url.rpartition("/")[2], "")
        answer = next(answers[key] for key in keys if key in answers)
        if isinstance(answer, Exception):
            raise answer
        made = requests.Response()
        made.status_code, content = answer
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        made.raw = io.BytesIO(content)
        return made

    monkeypatch.setattr("google.auth.transport.requests.AuthorizedSession.request", request)
    monkeypatch.setattr(checks, "credentials", AnonymousCredentials)
    return answers

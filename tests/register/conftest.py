import json
import shutil

import pytest

from common.storage.files import tree_digest
from components.evaluate.gate import CHAMPION, Comparison, decide
from trainer.job import done


@pytest.fixture
def vertex_place(vertex, bucket):
    """Returns a registry in another region than the one that Google's clients take by default."""
    vertex.location = "europe-west4"
    vertex.parent = f"projects/{vertex.project}/locations/{vertex.location}"
    return f"vertex://{vertex.project}/{vertex.location}"


@pytest.fixture
def client(vertex):
    """Google's client, as somebody else uses it."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform_v1 as v1

    return v1.ModelServiceClient(
        transport="rest",
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": vertex.url},
    )


@pytest.fixture
def uploaded(bucket):
    """Copies a model and its files to a run's directory in the bucket; returns its place."""

    def upload(model, run):
        shutil.copytree(model.parent, bucket / "runs" / run / "job")
        return f"gs://demo/runs/{run}/job/{model.name}"

    return upload


@pytest.fixture
def job(tmp_path):
    """Makes the directory of a job with a model that is unique to the name."""

    def make(name="job", **settings):
        model = tmp_path / name / "model"
        (model / "variables").mkdir(parents=True)
        (model / "saved_model.pb").write_text(name)
        (model / "variables/variables.index").write_text("index")
        (model.parent / "job.json").write_text(json.dumps({"identity": {}, "settings": settings}))
        ended = {"validation": {}, "seconds": 1.0, "examples_per_s": None}
        done.Done(step=40, epochs=8.0, exported_step=30, loss=0.5, **ended).save(str(model.parent))
        return model.parent

    return make


@pytest.fixture
def evaluated(job):
    """Makes a job with an evaluation in which any lead counts; returns directory and content."""

    def make(name="job", accuracy=0.9, champion=None, **settings):
        directory = job(name, **settings)
        words = f"accuracy {accuracy:.4f} reaches the threshold"
        comparisons = [Comparison(who="threshold", passed=True, words=words)]
        if champion:
            best = accuracy > champion["metrics"]["accuracy"]
            comparisons.append(
                Comparison(who=CHAMPION, passed=best, words="the comparison with the champion")
            )
        evaluation = {
            "metrics": {"accuracy": accuracy},
            "metric": "accuracy",
            "dataset": "digits",
            "model_digest": tree_digest(directory / "model"),
            "champion": champion,
            "decision": decide("accuracy", comparisons),
        }
        (directory / "evaluation.json").write_text(json.dumps(evaluation))
        return directory, evaluation

    return make

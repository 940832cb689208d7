"""Endpoints of a Vertex AI that is this process; behind them are the containers' own commands."""

import pytest
from google.api_core import exceptions
from saved_models import export_untrained

from components.deploy.__main__ import main
from components.evaluate.examples import sample
from components.predict.model import Model
from components.register.register import open_registry
from tests.cloud.conftest import IMAGE
from tests.rides import convert_quietly, source, typed_rows


@pytest.fixture
def registry(vertex, bucket, tmp_path):
    """Returns a registry with four versions of `rides`.

    The third does not answer as its evaluation says, the fourth not at all.
    """
    vertex.endpoints.folders["gs://"] = f"{bucket.parent}/"
    manifest = convert_quietly(source(tmp_path, typed_rows(300)))
    registry = f"vertex://{vertex.project}/{vertex.location}"
    for seed in (1, 2, 3, 4):
        model = export_untrained(manifest, bucket / "runs" / str(seed) / "model", seed=seed)
        answered = sample(Model(model), manifest, "probabilities", None)
        if seed == 3:
            answered["answers"] = [[1 - share for share in row] for row in answered["answers"]]
        if seed == 4:
            answered["instances"][0]["nothing"] = 1
        facts = {"image": IMAGE, "decision": {"reasons": []}, "answered": answered}
        open_registry(registry).register("rides", f"gs://demo/runs/{seed}/model", facts)
    return registry


@pytest.fixture
def deploy(registry, refused, capsys):
    """Runs a verb for a version; returns the version and share of each line, or is refused."""

    def run(line, problem=""):
        verb, version, *flags = line.split()
        argv = [verb, "--registry", registry, "--name", version, *flags]
        if problem:
            assert problem in refused(main, *argv)
            return []
        main(argv)
        return [" ".join(line.split()[:2]) for line in capsys.readouterr().out.splitlines()[2:]]

    return run


@pytest.mark.cluster
def test_canary_rollback_undeploy_delete(deploy, vertex):
    deploy("rollback rides", "error: model 'rides' has no endpoint\n")
    deploy("deploy rides@7", "unknown version of model 'rides' '7'")
    account = "serves@demo-project.iam.gserviceaccount.com"
    flags = f"--machine n1-standard-4 --service-account {account}"
    assert deploy(f"deploy rides@1 {flags}") == ["1 100"]
    deploy("rollback rides", "no version was deployed before")
    assert deploy("deploy rides@2 --traffic 10") == ["1 90", "2 10"]
    assert deploy("deploy rides@2 --traffic 60") == ["1 40", "2 60"]
    [endpoint] = vertex.endpoints.items.values()
    deployed = endpoint.deployed_models[0]
    assert deployed.dedicated_resources.machine_spec.machine_type == "n1-standard-4"
    assert deployed.service_account == account

    def refuse(*_, **__):
        raise exceptions.PermissionDenied("not now")

    vertex.route("POST", "{parent}/endpoints/{id}:predict", refuse)
    deploy("deploy rides@2 --traffic 20", "not now")
    assert deploy("list rides") == ["1 40", "2 60"]
    assert deploy("rollback rides") == ["1 100", "2 0"]
    assert deploy("undeploy rides") == ["1 100"]
    assert not deploy("delete rides") and not vertex.endpoints.items


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("deploy rides@3 --traffic 20", "does not answer as when it was judged"),
        ("deploy rides@4", "unknown input of row 0: 'nothing'"),
        ("deploy rides@1 --machine n1-standard-1", "dedicated_resources.machine_spec; Message"),
    ],
)
def test_unfit_version_is_taken_back(deploy, vertex, line, problem):
    deploy(line, problem)
    [endpoint] = vertex.endpoints.items.values()
    assert not endpoint.deployed_models and not endpoint.traffic_split
    deploy("deploy rides@2")
    deploy(line, problem)
    assert deploy("list rides") == ["2 100"]


def test_wrong_registry_or_share_refused(refused):
    line = refused(main, "list", "--registry", "registry", "--name", "m")
    assert "write vertex://PROJECT/LOCATION" in line
    place = ("--registry", "vertex://p/l", "--name", "m")
    assert "--traffic" in refused(main, "deploy", *place, "--traffic", "0")

"""Endpoints of a Vertex AI that is this process; what answers behind them are the containers' own commands."""

import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saved_models import export_untrained

from common.errors import UserError
from components.deploy.__main__ import main
from components.deploy.deploy import share
from components.evaluate.examples import sample
from components.predict.model import Model
from components.register.register import open_registry
from tests.cloud.conftest import IMAGE
from tests.rides import convert_quietly, source, typed_rows


@pytest.fixture
def place(vertex: Any, bucket: pathlib.Path, tmp_path: pathlib.Path) -> list[str]:
    """Returns flags of a registry with four versions of `rides`; the third does not answer as its evaluation says, the fourth not at all."""
    vertex.endpoints.folders["gs://"] = f"{bucket.parent}/"
    manifest = convert_quietly(source(tmp_path, typed_rows(300)))
    registry = f"vertex://{vertex.project}/{vertex.location}"
    for seed in (1, 2, 3, 4):
        model = export_untrained(manifest, bucket / "runs" / str(seed) / "model", seed=seed)
        answered = sample(Model.load(model), manifest, "probabilities", None)
        if seed == 3:
            answered["answers"] = [[1 - share for share in row] for row in answered["answers"]]
        if seed == 4:
            answered["instances"][0]["nothing"] = 1
        facts = {"image": IMAGE, "decision": {"reasons": []}, "answered": answered}
        open_registry(registry).register("rides", f"gs://demo/runs/{seed}/model", facts)
    return ["--registry", registry, "--name"]


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Returns version and share of each line that was printed."""
    return [" ".join(line.split()[:2]) for line in capsys.readouterr().out.splitlines()[2:]]


@pytest.mark.cluster
def test_canary_rollback_undeploy_delete(place, vertex, capsys, refused):
    for verb in ("rollback", "undeploy", "delete"):
        assert refused(main, verb, *place, "rides") == "error: model 'rides' has no endpoint\n"
    assert "unknown version of model 'rides' '7'" in refused(main, "deploy", *place, "rides@7")
    main(["deploy", *place, "rides@1", "--machine", "n1-standard-4"])
    assert shown(capsys) == ["1 100"]
    assert "no version was deployed before" in refused(main, "rollback", *place, "rides")
    main(["deploy", *place, "rides@2", "--traffic", "10"])
    assert shown(capsys) == ["1 90", "2 10"]
    main(["deploy", *place, "rides@2", "--traffic", "60"])
    assert shown(capsys) == ["1 40", "2 60"]
    [endpoint] = vertex.endpoints.items.values()
    assert (
        endpoint.deployed_models[0].dedicated_resources.machine_spec.machine_type == "n1-standard-4"
    )
    main(["rollback", *place, "rides"])
    assert shown(capsys) == ["1 100", "2 0"]
    main(["undeploy", *place, "rides"])
    assert shown(capsys) == ["1 100"]
    main(["delete", *place, "rides"])
    assert (
        not vertex.endpoints.items and capsys.readouterr().out == "model 'rides' has no endpoint\n"
    )


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("rides@3", "does not answer as when it was judged"),
        ("rides@4", "unknown input of row 0: 'nothing'"),
    ],
)
def test_version_with_other_answers_is_taken_back(place, vertex, refused, capsys, version, said):
    assert said in refused(main, "deploy", *place, version)
    [endpoint] = vertex.endpoints.items.values()
    assert not endpoint.deployed_models and not endpoint.traffic_split
    main(["deploy", *place, "rides@1"])
    assert said in refused(main, "deploy", *place, version, "--traffic", 20)
    capsys.readouterr()
    main(["list", *place, "rides"])
    assert shown(capsys) == ["1 100"]


def test_refused_machine_leaves_traffic(place, vertex, refused):
    assert "machine_type 'big' is not supported" in refused(
        main, "deploy", *place, "rides@1", "--machine", "big"
    )
    [endpoint] = vertex.endpoints.items.values()
    assert not endpoint.deployed_models


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100)),
    st.sampled_from("abcxyz"),
    st.integers(1, 100),
)
def test_shares_add_up(split: dict[str, int], id: str, percent: int):
    shares = share(split, id, percent)
    others = {other: part for other, part in split.items() if other != id and part}
    assert sum(shares.values()) == 100 and min(shares.values()) >= 0
    assert shares[id] == (percent if others else 100)
    for other, part in others.items():
        assert abs(shares[other] - (100 - percent) * part / sum(others.values())) < 1.5


def test_registry_of_directories_refused(refused):
    assert "write vertex://PROJECT/LOCATION" in refused(
        main, "list", "--registry", "registry", "--name", "m"
    )
    with pytest.raises(UserError, match="--traffic"):
        main(["deploy", "--registry", "vertex://p/l", "--name", "m", "--traffic", "0"])

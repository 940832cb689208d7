import json
import threading

import pytest

from components.evaluate.__main__ import main as evaluate
from components.register import vertex as registry_there
from components.register.__main__ import main
from components.register.register import load_evaluation, open_registry, promote, register
from components.register.store import CHAMPION
from trainer.base.errors import UserError


@pytest.fixture
def store(vertex_place):
    return open_registry(vertex_place)


@pytest.fixture
def client(vertex):
    """Google's client, as somebody else uses it."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform_v1 as v1

    return v1.ModelServiceClient(
        transport="rest", credentials=AnonymousCredentials(), client_options={"api_endpoint": vertex.url}
    )


@pytest.fixture
def add(evaluated, vertex_place):
    """Registers a model of a run; returns its version."""

    def run(name, accuracy=0.9):
        directory, evaluation = evaluated(name, accuracy)
        model = str(directory / "model")
        return register(model_dir=model, evaluation=evaluation, registry=vertex_place, name="m", run=name)

    return run


def test_default_is_the_champion_and_versions_are_found_by_their_run(store, add):
    assert [add(run) for run in ("r1", "r2", "r3")] == ["1", "2", "3"]
    assert store.add("m", store.model_dir("m", "2"), {"run": "r2"}) == "2"  # a retry of the step
    assert store.aliases("m") == {"default": "1"}  # Vertex AI has one from the first on
    assert store.promote("m", "3", instead_of=None)
    assert store.aliases("m") == {"default": "3", "champion": "3"}
    assert store.promote("m", "2", instead_of="3")
    assert store.aliases("m") == {"default": "2", "champion": "2", "previous": "3"}
    store.rollback("m")
    assert store.aliases("m") == {"default": "3", "champion": "3", "previous": "2"}
    assert [store.version_of("m", run) for run in ("r1", "r3", "r9")] == ["1", "3", None]
    assert (store.versions("x"), store.aliases("x"), store.version_of("x", "r1")) == ([], {}, None)
    assert not store.promote("m", "1", instead_of="2")


def test_two_first_runs_at_once_make_two_versions_of_one_model(store, add, evaluated, client, vertex, monkeypatch):
    monkeypatch.setattr(registry_there, "_WAIT_S", 0.01)
    seen, both = store._versions, threading.Barrier(2)

    def versions(name):
        found = seen(name)
        if not both.broken and not found and both.n_waiting < 2 and threading.current_thread().name.startswith("first"):
            both.wait(20)  # so that each has seen none
        return found

    monkeypatch.setattr(registry_there.VertexRegistry, "_versions", lambda self, name: versions(name))
    got = []
    threads = [threading.Thread(target=lambda run=run: got.append(add(run)), name=f"first {run}") for run in "ab"]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(got) == ["1", "2"] and store.versions("m") == ["1", "2"]
    assert len(list(client.list_models(parent=vertex.parent))) == 1


def test_a_model_of_somebody_elses_is_left_alone(store, add, client, vertex):
    from google.cloud import aiplatform_v1 as v1

    def upload(**about):
        model = v1.Model(display_name="m", artifact_uri="gs://b/m")
        return client.upload_model(request=v1.UploadModelRequest(parent=vertex.parent, model=model, **about)).result()

    theirs = upload().model
    assert add("r1") == "1" and store.names() == ["m"]
    assert len(list(client.list_model_versions(name=theirs))) == 1
    upload(model_id="m-other")
    with pytest.raises(UserError, match=r"models/m-other is not of model 'other' of this program"):
        store.versions("other")


def test_a_version_has_its_facts_beside_the_model_or_is_not_made(store, add, tmp_path, monkeypatch):
    add("r1")
    (kept,) = tmp_path.glob("r1/version-*.json")
    assert json.loads(kept.read_text())["facts"]["metrics"]["accuracy"] == 0.9
    (model,) = store._versions("m").values()
    assert "accuracy 0.9000 reaches the threshold" in model.version_description and model.labels["run"] == "r1"
    assert model.container_spec.image_uri == registry_there.SERVING_IMAGE
    monkeypatch.setattr(registry_there, "_text", lambda *_: [][0])
    with pytest.raises(IndexError):
        add("r2")
    assert store.versions("m") == ["1"]


@pytest.mark.cluster
def test_the_champion_is_loaded_from_where_the_registry_has_it_and_scored_again(
    store, vertex_place, make_model, scored, tmp_path
):
    at = {"registry": vertex_place, "name": "m"}

    def judged(wrong):
        flags = ["--data-dir", str(scored.path), "--output", str(tmp_path), "--registry", vertex_place, "--name", "m"]
        model = str(make_model(wrong=wrong))
        assert evaluate(["--model-dir", model, *flags]) == 0
        evaluation = load_evaluation(str(tmp_path / "evaluation.json"), model)
        return evaluation, register(model_dir=model, evaluation=evaluation, **at)

    unaware, version = judged(wrong=10)
    assert promote(evaluation=unaware, version=version, **at) == "version 1 is the champion now"
    evaluation, version = judged(wrong=5)
    assert evaluation["champion"]["metrics"]["accuracy"] == pytest.approx(1 - 10 / len(scored.labels))
    assert evaluation["features"] == {"image": "uint8[8, 8, 1]"}
    assert "and is 1 now" in promote(evaluation=unaware, version=version, **at)
    told = promote(evaluation=evaluation, version=version, **at)
    assert told == "version 2 is the champion now, version 1 the previous one"
    assert store.alias("m", CHAMPION) == "2"


def test_what_google_refuses_is_one_line(vertex, refused, vertex_place):
    forbidden = f"vertex://other-project/{vertex.location}"
    line = refused(main, "rollback", "--registry", forbidden, "--name", "m")
    assert f"{forbidden}: 403" in line and "Permission denied" in line
    assert "write vertex://PROJECT/LOCATION" in refused(main, "rollback", "--registry", "vertex://p", "--name", "m")
    assert "model name" in refused(main, "rollback", "--registry", vertex_place, "--name", 'm" OR x="')

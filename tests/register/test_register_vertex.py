import dataclasses
import shutil
import threading

import pytest

from common.errors import UserError
from components.evaluate.__main__ import main as evaluate
from components.register import vertex as registry_there
from components.register.__main__ import main
from components.register.register import load_evaluation, open_registry, promote, register
from components.register.registry import CHAMPION, read_record
from tests.cloud.conftest import IMAGE


@pytest.fixture
def store(vertex_place):
    return open_registry(vertex_place)


@pytest.fixture
def add(evaluated, vertex_place, uploaded):
    """Registers a model of a run; returns its version."""

    def run(name, accuracy=0.9, **more):
        directory, evaluation = evaluated(name, accuracy)
        model = uploaded(directory / "model", name)
        about = {"registry": vertex_place, "name": "m", "run": name, "image": IMAGE, **more}
        return register(model_dir=model, evaluation=evaluation, **about)

    return run


def test_default_is_the_champion(store, add):
    for run in ("r1", "r2", "r3"):
        add(run)
    assert store.aliases("m") == {"default": "1"}  # Vertex AI has one from the first on
    assert store.promote("m", "3", instead_of=None)
    assert store.aliases("m") == {"default": "3", "champion": "3"}
    assert store.promote("m", "2", instead_of="3")
    assert store.aliases("m") == {"default": "2", "champion": "2", "previous": "3"}
    store.rollback("m")
    assert store.aliases("m") == {"default": "3", "champion": "3", "previous": "2"}


def test_two_first_runs_make_two_versions(store, add, evaluated, client, vertex, monkeypatch):
    seen, both = store.resources, threading.Barrier(2)

    def versions(name):
        found = seen(name)
        if not both.broken and not found and both.n_waiting < 2 and threading.current_thread().name.startswith("first"):
            both.wait(20)  # so that each has seen none
        return found

    monkeypatch.setattr(registry_there.VertexRegistry, "resources", lambda self, name: versions(name))
    got = []
    threads = [threading.Thread(target=lambda run=run: got.append(add(run)), name=f"first {run}") for run in "ab"]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(got) == ["1", "2"] and len(store.versions("m")) == 2
    assert len(list(client.list_models(parent=vertex.parent))) == 1


def test_foreign_model_is_left_alone(store, add, client, vertex):
    from google.cloud import aiplatform_v1 as v1

    def upload(**about):
        model = v1.Model(display_name="m", artifact_uri="gs://b/m", container_spec={"image_uri": IMAGE})
        return client.upload_model(request=v1.UploadModelRequest(parent=vertex.parent, model=model, **about)).result()

    theirs = upload().model
    assert add("r1") == "1" and store.names() == ["m"]
    assert len(list(client.list_model_versions(name=theirs))) == 1
    upload(model_id="m-other")
    assert store.versions("other") == []
    with pytest.raises(UserError, match=r"models/m-other is not of this program; choose another name"):
        store.register("other", store.find("m", "1").model_dir, {})


def test_version_has_files_of_its_own(store, add, client, bucket, monkeypatch):
    assert [add(run) for run in ("r1", "r2")] == ["1", "2"]
    shutil.rmtree(bucket / "runs")  # the versions need nothing of them
    version = store.find("m", "2")
    folder = bucket / "models" / "m" / version.folder.split("/")[-1]
    assert version.model_dir == f"gs://demo/models/m/{folder.name}/1" and version.has_files
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.*")} == {
        "version.json",
        "1/saved_model.pb",
        "1/variables/variables.index",
    }
    assert (folder / "1" / "saved_model.pb").read_text() == "r2"
    assert version.facts["metrics"]["accuracy"] == 0.9
    before = set(bucket.rglob("*"))
    store.delete("m", "2")
    assert len(store.versions("m")) == 1 and before - set(bucket.rglob("*")) == {
        folder,
        *(p for p in before if folder in p.parents),
    }
    for dies_in in ("copy_tree", "write_record"):
        with monkeypatch.context() as patched, pytest.raises(IndexError):
            patched.setattr(registry_there, dies_in, lambda *_: [][0])
            add(f"dies-in-{dies_in}")
        assert len(store.versions("m")) == 1
    [left] = {*(bucket / "models" / "m").iterdir()} - before
    assert read_record(f"gs://demo/models/m/{left.name}") and read_record(left.rename(bucket / "backup")) is None


def test_container_serves_version(store, add, client):
    add("r1")
    [model] = store.resources("m")
    spec = model.container_spec
    assert (spec.image_uri, [*spec.args]) == (IMAGE, ["components.serve", "--name=m"])
    assert not spec.command and spec.ports[0].container_port == 8080
    assert (spec.predict_route, spec.health_route) == ("/v1/models/m:predict", "/v1/models/m")
    assert store.find("m", "1").model_dir == f"{model.artifact_uri}/1" and "accuracy 0.9" in model.version_description
    assert model.labels["run"] == "r1"


@pytest.mark.parametrize(
    "image", ["", IMAGE.partition("@")[0], IMAGE[:-1], IMAGE.replace("us-docker.pkg.dev", "docker.io")]
)
def test_image_by_other_name_is_refused(add, bucket, image):
    with pytest.raises(UserError, match=r"^--image.*: give an image in Artifact Registry by digest"):
        add("r1", image=image)
    assert not (bucket / "models").exists()


@pytest.mark.cluster
def test_champion_is_scored_again(store, vertex_place, make_model, scored, tmp_path, bucket, uploaded, monkeypatch):
    # TensorFlow's own file system, which loads it, knows no other gs:// than Google's.
    listed = registry_there.VertexRegistry.versions
    place = f"{bucket}/"
    monkeypatch.setattr(
        registry_there.VertexRegistry,
        "versions",
        lambda self, name: [
            dataclasses.replace(version, model_dir=version.model_dir.replace("gs://demo/", place))
            for version in listed(self, name)
        ],
    )
    at = {"registry": vertex_place, "name": "m"}

    def judged(wrong):
        flags = ["--data-dir", str(scored.path), "--output", str(tmp_path), "--registry", vertex_place, "--name", "m"]
        made = make_model(wrong=wrong)
        assert evaluate(["--model-dir", str(made), *flags]) == 0
        model = uploaded(made, f"wrong-{wrong}")
        evaluation = load_evaluation(str(tmp_path / "evaluation.json"), model)
        return evaluation, register(model_dir=model, evaluation=evaluation, image=IMAGE, **at)

    unaware, version = judged(wrong=10)
    assert promote(evaluation=unaware, version=version, **at) == "version 1 is the champion now"
    evaluation, version = judged(wrong=5)
    assert evaluation["champion"]["metrics"]["accuracy"] == pytest.approx(1 - 10 / len(scored.labels))
    assert evaluation["features"] == {"image": "uint8[8, 8, 1]"}
    assert "and is 1 now" in promote(evaluation=unaware, version=version, **at)
    told = promote(evaluation=evaluation, version=version, **at)
    assert told == "version 2 is the champion now, version 1 the previous one"
    assert store.aliases("m").get(CHAMPION) == "2"


def test_refusal_of_google_is_one_line(vertex, refused, vertex_place):
    forbidden = f"vertex://other-project/{vertex.location}"
    line = refused(main, "rollback", "--registry", forbidden, "--name", "m")
    assert f"{forbidden}: 403" in line and "Permission denied" in line
    assert "write vertex://PROJECT/LOCATION" in refused(main, "rollback", "--registry", "vertex://p", "--name", "m")
    assert "model name" in refused(main, "rollback", "--registry", vertex_place, "--name", 'm" OR x="')

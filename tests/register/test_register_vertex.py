import re
import shutil
import threading

import pytest

from common.errors import UserError
from components.register import vertex as registry_module
from components.register.__main__ import main
from components.register.register import open_registry, register
from components.register.registry import read_record
from tests.cloud.conftest import IMAGE


@pytest.fixture
def store(vertex_place):
    return open_registry(vertex_place)


@pytest.fixture
def add(evaluated, vertex_place, uploaded):
    """Registers a model of a run; returns its version."""

    def run(name, image=IMAGE):
        directory, evaluation = evaluated(name)
        model = uploaded(directory / "model", name)
        about = {"registry": vertex_place, "name": "m", "run": name, "image": image}
        return register(model_dir=model, evaluation=evaluation, **about)

    return run


def test_default_is_the_champion(store, add, vertex, client):
    for run in ("r1", "r2"):
        add(run)
    assert store.aliases("m") == {"default": "1"}  # Vertex AI has one from the first on.
    assert store.promote("m", "2", instead_of=None)
    assert store.aliases("m") == {"default": "2", "champion": "2"}
    assert store.promote("m", "1", instead_of="2")
    assert store.aliases("m") == {"default": "1", "champion": "1", "previous": "2"}
    store.rollback("m")
    assert store.aliases("m") == {"default": "2", "champion": "2", "previous": "1"}
    moved_by_hand = f"{vertex.parent}/models/m-m@2"
    client.merge_version_aliases(name=moved_by_hand, version_aliases=["previous"])
    with pytest.raises(UserError, match="no previous champion to go back to"):
        store.rollback("m")


def test_two_first_runs_make_two_versions(store, add, client, vertex, monkeypatch):
    resources, both = registry_module.VertexRegistry.resources, threading.Barrier(2)

    def wait_for_both(self, name):
        versions = resources(self, name)
        if (
            not both.broken
            and not versions
            and both.n_waiting < 2
            and threading.current_thread() in threads
        ):
            both.wait(20)  # Each sees no version.
        return versions

    monkeypatch.setattr(registry_module.VertexRegistry, "resources", wait_for_both)
    threads = [threading.Thread(target=add, args=[run]) for run in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [version.number for version in store.versions("m")] == ["1", "2"]
    assert len(list(client.list_models(parent=vertex.parent))) == 1


def test_foreign_model_is_left_alone(store, add, client, vertex):
    from google.cloud import aiplatform_v1 as v1

    def upload(**about):
        model = v1.Model(
            display_name="m", artifact_uri="gs://b/m", container_spec={"image_uri": IMAGE}
        )
        return client.upload_model(
            request=v1.UploadModelRequest(parent=vertex.parent, model=model, **about)
        ).result()

    foreign = upload().model
    assert add("r1") == "1" and store.names() == ["m"]
    assert len(list(client.list_model_versions(name=foreign))) == 1
    upload(model_id="m-other")
    assert store.versions("other") == []
    with pytest.raises(
        UserError, match=r"models/m-other is not of this program; choose another name"
    ):
        store.register("other", store.find("m", "1").model_dir, {})


def test_version_has_own_files(store, add, bucket):
    assert [add(run) for run in ("r1", "r2")] == ["1", "2"]
    shutil.rmtree(bucket / "runs")  # The versions need nothing of them.
    version, before = store.find("m", "2"), set(bucket.rglob("*"))
    folder = bucket / version.folder.removeprefix("gs://demo/")
    assert folder.parent == bucket / "models" / "m" and version.has_files
    assert version.model_dir == f"gs://demo/models/m/{folder.name}/1"
    paths = {"version.json", "1/saved_model.pb", "1/variables/variables.index"}
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.*")} == paths
    assert (folder / "1" / "saved_model.pb").read_text() == "r2"
    assert version.facts["metrics"]["accuracy"] == 0.9
    store.delete("m", "2")
    assert len(store.versions("m")) == 1
    assert before - set(bucket.rglob("*")) == {
        path for path in before if folder in (path, *path.parents)
    }


def test_killed_addition_adds_no_version(store, add, bucket, monkeypatch):
    add("r1")
    before = {*(bucket / "models" / "m").iterdir()}
    for step in ("copy_tree", "write_record"):
        with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
            patched.setattr(registry_module, step, lambda *_: 1 / 0)
            add(f"killed-in-{step}")
        assert len(store.versions("m")) == 1
    (left,) = {*(bucket / "models" / "m").iterdir()} - before
    assert (
        read_record(f"gs://demo/models/m/{left.name}")
        and read_record(left.rename(bucket / "backup")) is None
    )


def test_container_serves_version(store, add):
    add("r1")
    (model,) = store.resources("m")
    spec = model.container_spec
    assert (spec.image_uri, [*spec.args]) == (IMAGE, ["components.serve", "--name=m"])
    assert not spec.command and spec.ports[0].container_port == 8080
    assert (spec.predict_route, spec.health_route) == ("/v1/models/m:predict", "/v1/models/m")
    assert (
        store.find("m", "1").model_dir == f"{model.artifact_uri}/1"
        and "accuracy 0.9" in model.version_description
    )
    assert model.labels["run"] == "r1"


@pytest.mark.parametrize(
    "image",
    ["", IMAGE.partition("@")[0], IMAGE[:-1], IMAGE.replace("us-docker.pkg.dev", "docker.io")],
)
def test_image_without_digest_refused(add, bucket, image):
    with pytest.raises(
        UserError, match=r"^--image.*: give an image in Artifact Registry by digest"
    ):
        add("r1", image=image)
    assert not (bucket / "models").exists()


@pytest.mark.parametrize(
    ("place", "name", "message"),
    [
        (
            "vertex://other-project/us-central1",
            "m",
            "vertex://other-project/us-central1: 403 .*Permission denied",
        ),
        ("vertex://p", "m", "write vertex://PROJECT/LOCATION"),
        ("vertex://demo-project/us-central1", 'm" OR x="', "model name"),
    ],
)
def test_refusal_of_google_is_error(vertex, refused, place, name, message):
    assert re.search(message, refused(main, "rollback", "--registry", place, "--name", name))

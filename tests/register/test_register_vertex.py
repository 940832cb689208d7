import itertools
import shutil

import pytest
from google.api_core import exceptions

from components.register import vertex as registry_module
from components.register.__main__ import main
from components.register.register import open_registry, register
from components.register.registry import read_record
from tests.cloud.conftest import IMAGE
from tests.convert.dataset_files import read_folder
from tests.errors import user_error


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


def test_default_is_the_champion(store, add):
    for run in ("r1", "r2"):
        add(run)
    assert store.aliases("m") == {"default": "1"}  # Vertex AI has one from the first on.
    assert store.promote("m", "2", instead_of=None) and store.promote("m", "1", instead_of="2")
    assert store.aliases("m") == {"default": "1", "champion": "1", "previous": "2"}


def test_interrupted_promotion_leaves_champion(store, add, vertex):
    for run in ("r1", "r2"):
        add(run)
    store.promote("m", "1")
    merge, calls = vertex.models.merge_aliases, itertools.count()

    def refuse_second(request):
        if next(calls):
            raise exceptions.PermissionDenied("not now")
        return merge(request)

    vertex.route("POST", "{parent}/models/{id}@{id}:mergeVersionAliases", refuse_second)
    with user_error("not now"):
        store.promote("m", "2")
    assert store.aliases("m")["champion"] == "1"


def test_late_error_adds_no_second(store, add, vertex):
    """The operation fails although the version is there."""
    vertex.late_errors = [13]  # INTERNAL
    assert add("r1") == "1" and len(store.versions("m")) == 1


def test_foreign_model_is_left_alone(store, add, client, vertex):
    from google.cloud import aiplatform_v1 as v1

    about = {"artifact_uri": "gs://theirs/m", "container_spec": {"image_uri": IMAGE}}
    model = v1.Model(display_name="m", **about)
    request = v1.UploadModelRequest(parent=vertex.parent, model=model, model_id="m-other")
    client.upload_model(request=request).result()
    assert add("r1") == "1" and store.names() == ["m"] and store.versions("other") == []
    with user_error(r"models/m-other is not of this program; choose another"):
        store.register("other", store.find("m", "1").model_dir, {})


def test_version_has_own_files(store, add, bucket):
    assert [add(run) for run in ("r1", "r2")] == ["1", "2"]
    shutil.rmtree(bucket / "runs")  # The versions need nothing of them.
    folder, before = store.find("m", "2").folder.removeprefix("gs://demo/"), read_folder(bucket)
    files = read_folder(bucket / folder)
    assert files.keys() == {"version.json", "1/saved_model.pb", "1/variables/variables.index"}
    assert files["1/saved_model.pb"] == b"r2"
    store.delete("m", "2")
    own = {f"{folder}/{name}" for name in files}
    assert before.keys() - read_folder(bucket) == own


@pytest.mark.parametrize("step", ["copy_tree", "write_record"])
def test_killed_addition_adds_no_version(store, add, bucket, monkeypatch, step):
    """The rest of it has a record, by which cleanup knows it."""
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(registry_module, step, lambda *_: 1 / 0)
        add("r1")
    assert store.versions("m") == []
    for left in bucket.glob("models/m/*"):
        assert read_record(f"gs://demo/models/m/{left.name}")


@pytest.mark.parametrize(
    "image", [IMAGE.partition("@")[0], IMAGE.replace("us-docker.pkg.dev", "docker.io")]
)
def test_image_without_digest_refused(add, bucket, image):
    with user_error(r"^--image.*: give an image in Artifact Registry by"):
        add("r1", image=image)
    assert not (bucket / "models").exists()


def test_refusal_of_google_is_error(vertex, refused):
    flags = "--registry", "vertex://other-project/us-central1", "--name", "m"
    assert "other-project/us-central1: 403 " in refused(main, "rollback", *flags)

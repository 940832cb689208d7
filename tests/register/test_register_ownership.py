"""Nothing that somebody else has put beside our versions is changed or deleted."""

import contextlib
import io
import json
import pathlib
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.google_cloud import MANAGED_BY
from components.register.directory import DirectoryRegistry
from components.register.register import open_registry
from components.register.registry import marked
from tests.cloud.conftest import IMAGE
from tests.convert.dataset_files import write_files
from tests.errors import user_error

RECORDS = st.dictionaries(st.sampled_from(["version", "run", "managed_by"]), st.text())
COPY = {"version": "2", **marked("registry/m/2")}  # Of a record of ours.
CONTENTS = st.binary() | (RECORDS | st.just(COPY)).map(lambda record: json.dumps(record).encode())
PLACES = [
    "foo.bar/1/saved_model.pb",
    "other/7/version.json",
    "other/history.jsonl",
    "other/aliases.json",
    "m/7/version.json",
    "m/7/saved_model.pb",
    "m/aliases.json",
    "m/notes.txt",
    "m/.partial-x/version.json",
    "m/.partial-x/model/saved_model.pb",
]


def put(directory, contents):
    if contents:
        write_files(directory, contents)
    return {directory / place: content for place, content in contents.items()}


@given(
    st.dictionaries(st.sampled_from(PLACES), CONTENTS),
    st.dictionaries(st.sampled_from(["version.json", "saved_model.pb"]), CONTENTS),
)
def test_foreign_files_in_registry_stay(contents, in_place_of_deleted):
    """Versions come and go beside foreign files, each of which stays and costs one note at most."""
    with tempfile.TemporaryDirectory() as root, contextlib.redirect_stderr(io.StringIO()) as notes:
        place, model = pathlib.Path(root, "registry"), f"{root}/model"
        registry = DirectoryRegistry(str(place))
        put(pathlib.Path(model), {"saved_model.pb": b""})
        foreign = put(place, contents)
        first, second, third = (registry.register("m", model, {}) for _ in range(3))
        assert registry.promote("m", second) and registry.promote("m", third)
        assert registry.rollback("m") == second
        registry.delete("m", first)
        foreign |= put(place / "m" / first, in_place_of_deleted)
        fourth = registry.register("m", model, {})
        assert registry.names() == ["m"]
        assert [version.number for version in registry.versions("m")] == [second, third, fourth]
        assert {path: path.read_bytes() for path in foreign} == foreign
        assert notes.getvalue().count("\n") <= len(foreign)


def test_foreign_history_is_refused(tmp_path, job):
    content = b'{"step": 1}\n'
    (history,) = put(tmp_path / "m", {"history.jsonl": content})
    with user_error(r"m/history\.jsonl cannot be used .* somebody else's file"):
        DirectoryRegistry(str(tmp_path)).register("m", str(job() / "model"), {})
    assert history.read_bytes() == content


@pytest.mark.parametrize(
    ("labels", "alias"),
    [
        ({}, "champion"),
        ({MANAGED_BY[0]: "me", "name": "m"}, "theirs"),
    ],
)
def test_foreign_versions_on_vertex_stay(vertex, vertex_place, client, bucket, labels, alias):
    """Versions and folders of others stay; one that has a needed alias ends the promotion."""
    from google.cloud import aiplatform_v1 as v1

    put(bucket / "job", {"saved_model.pb": b"m"})
    registry, facts = open_registry(vertex_place), {"decision": {"reasons": []}, "image": IMAGE}
    first, second, third = (registry.register("m", "gs://demo/job", facts) for _ in range(3))
    parent, folder = registry.resource_name("m"), registry.find("m", second).folder
    theirs = v1.Model(
        display_name="m",
        artifact_uri=registry.find("m", first).folder,
        labels=labels,
        version_aliases=[alias],
        container_spec={"image_uri": IMAGE},
    )
    request = v1.UploadModelRequest(parent=vertex.parent, parent_model=parent, model=theirs)
    client.upload_model(request=request)
    record = bucket / folder.removeprefix("gs://demo/") / "version.json"
    record.write_bytes(b"{}")

    def foreign():
        return v1.Model(vertex.models.versions[parent][-1])

    before = foreign()
    if alias == "champion":
        with user_error("champion is a version of somebody else's"):
            registry.promote("m", first, instead_of=None)
    else:
        assert registry.promote("m", first, instead_of=None)
        assert registry.promote("m", third, instead_of=first) and registry.rollback("m") == first
    registry.delete("m", second)
    assert [version.number for version in registry.versions("m")] == [first, third]
    assert foreign() == before and before.version_id not in (first, second, third)
    assert record.exists()

import json

import pytest

from components.evaluate.__main__ import main as evaluate
from components.register.__main__ import main
from components.register.register import open_registry, promote
from components.register.registry import CHAMPION, PREVIOUS
from trainer.base.errors import UserError


@pytest.fixture
def upload(vertex):
    """Uploads models as ModelUploadOp does it, and returns the model's resource name."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform_v1 as v1

    client = v1.ModelServiceClient(
        transport="rest", credentials=AnonymousCredentials(), client_options={"api_endpoint": vertex.url}
    )

    def run(name="m", run="r1", uri="gs://bucket/model", parent=""):
        model = v1.Model(display_name=name, artifact_uri=uri, version_aliases=["candidate"], labels={"run": run})
        request = v1.UploadModelRequest(parent=vertex.parent, model=model, parent_model=parent)
        return client.upload_model(request=request).result().model

    return run


@pytest.fixture
def place(vertex):
    return f"vertex://{vertex.project}/{vertex.location}"


@pytest.fixture
def registry(place):
    return open_registry(place)


@pytest.fixture
def versions(upload):
    """A model with three versions, by the runs r1, r2, r3."""
    name = upload()
    for run in ("r2", "r3"):
        upload(run=run, parent=name, uri=f"gs://bucket/{run}")
    return name


def test_versions_are_found_by_run_although_they_are_not_the_default_one(registry, upload, versions):
    upload(name="other", run="r9")
    assert registry.resource_name("m") == versions
    assert [registry.version_of("m", run) for run in ("r1", "r2", "r3", "r9")] == ["1", "2", "3", None]
    assert (registry.resource_name("x"), registry.alias("x", CHAMPION), registry.version_of("x", "r1")) == (None,) * 3
    assert registry.alias("m", "default") == "1"
    assert registry.alias("m", "candidate") == "3"
    assert registry.model_dir("m", "2") == "gs://bucket/r2"


def test_of_a_retried_upload_the_newest_version_counts_and_of_models_with_the_same_name_the_oldest(
    registry, upload, versions
):
    for _ in range(8):
        upload(run="r3", parent=versions)
    assert registry.version_of("m", "r3") == "11"
    upload(run="r4")
    assert registry.resource_name("m") == versions
    assert registry.version_of("m", "r4") is None


def test_the_champion_moves_leaves_the_former_one_marked_and_comes_back(registry, versions, place, capsys):
    assert registry.promote("m", "1", instead_of=None)
    assert registry.promote("m", "3", instead_of="1")
    assert (registry.alias("m", CHAMPION), registry.alias("m", PREVIOUS)) == ("3", "1")
    for champion, previous in (("1", "3"), ("3", "1")):
        assert main(["--registry", place, "--name", "m", "--rollback"]) == 0
        assert (registry.alias("m", CHAMPION), registry.alias("m", PREVIOUS)) == (champion, previous)
    assert "m: version 3 is the champion again" in capsys.readouterr().out


def test_a_stale_or_impossible_promotion_is_refused(registry, versions):
    registry.promote("m", "2", instead_of=None)
    assert not registry.promote("m", "3", instead_of=None)
    assert not registry.promote("m", "3", instead_of="1")
    with pytest.raises(UserError, match=r"unknown version of model 'm' '4' \(known: 1, 2, 3\)"):
        registry.promote("m", "4", instead_of="2")
    with pytest.raises(UserError, match=r"unknown version of model 'x' '1'"):
        registry.promote("x", "1", instead_of=None)
    with pytest.raises(UserError, match="has no previous champion to go back to"):
        registry.rollback("m")
    assert registry.alias("m", CHAMPION) == "2"


def test_the_champion_is_loaded_from_where_the_registry_has_it_and_scored_again(
    registry, upload, place, make_model, scored, tmp_path
):
    def judged(wrong):
        flags = ["--data-dir", str(scored.path), "--output", str(tmp_path), "--registry", place, "--name", "m"]
        assert evaluate(["--model-dir", str(make_model(wrong=wrong)), *flags]) == 0
        return json.loads((tmp_path / "evaluation.json").read_text())

    evaluation = judged(wrong=10)
    name = upload(uri=str(make_model(wrong=10)))
    assert promote(evaluation=evaluation, registry=place, name="m", version="1") == "version 1 is the champion now"
    upload(run="r2", parent=name, uri=str(make_model(wrong=5)))
    unaware, evaluation = evaluation, judged(wrong=5)
    assert evaluation["champion"]["metrics"]["accuracy"] == pytest.approx(1 - 10 / len(scored.labels))
    assert evaluation["decision"]["verdict"] == "promote"
    assert "the champion was none when the model was evaluated, and is 1 now" in promote(
        evaluation=unaware, registry=place, name="m", version="2"
    )
    told = promote(evaluation=evaluation, registry=place, name="m", version="2")
    assert told == "version 2 is the champion now, version 1 the previous one"


def test_what_google_refuses_is_one_line(vertex, refused, place, tmp_path):
    forbidden = f"vertex://other-project/{vertex.location}"
    line = refused(main, "--registry", forbidden, "--name", "m", "--rollback")
    assert f"{forbidden}: 403" in line and "Permission denied" in line
    assert "write vertex://PROJECT/LOCATION" in refused(main, "--registry", "vertex://p", "--name", "m", "--rollback")
    assert "model name" in refused(main, "--registry", place, "--name", 'm" OR x="', "--rollback")

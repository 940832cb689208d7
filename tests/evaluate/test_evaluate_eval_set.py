"""Whatever becomes of a source, nothing that a model was trained on is scored, and nothing else is left out."""

import dataclasses
import itertools
import json
import pathlib
import random
import shutil
from typing import Any

import numpy as np
import pytest
import trips
from hypothesis import given, settings
from hypothesis import strategies as st

from common import provenance
from common.errors import UserError
from common.manifest import Manifest
from common.provenance import TrainedOn
from components.evaluate.__main__ import main
from components.evaluate.eval_set import LEAST, EvalSet, require_enough
from components.register.directory import DirectoryRegistry
from trainer.data import records
from trainer.data.shards import content_hashes

SCHEMA = {
    "name": "points",
    "origin": "made up",
    "columns": {"x": {"type": "float"}, "n": {"type": "int"}, "city": {"type": "string"}, "tip": {"type": "string"}},
    "label": {"column": "tip", "classes": ["no", "yes"]},
    "deep": [{"column": "x", "numeric": "z_score"}],
    "wide": [{"column": "city", "vocabulary": 3}],
}


def points(count: int, seed: int, wide: int = 1) -> list[dict[str, object]]:
    chance = random.Random(seed)
    return [
        {
            "x": chance.random(),
            "n": chance.randrange(99 * wide),
            "city": "c" + "ab" * chance.randrange(3 * wide),
            "tip": tip,
        }
        for tip in chance.choices(["no", "yes"], k=count)
    ]


def rows(data: pathlib.Path, split: str) -> list[tuple]:
    manifest = Manifest.load(data)
    read = records.batches(manifest, str(data), split, 10_000)
    return [
        row for batch in read for row in zip(*(batch[f.name].numpy().tolist() for f in manifest.features), strict=True)
    ]


def trained_on(data: pathlib.Path, model: pathlib.Path, before: TrainedOn | None = None) -> pathlib.Path:
    """Notes with a model that it was trained on a dataset, as an export does."""
    manifest = Manifest.load(data)
    learnt = TrainedOn.of(manifest, content_hashes(manifest, str(data), "train"))
    provenance.write(manifest, "m", str(model), learnt=learnt.and_before(before))
    return model


def converted(directory: pathlib.Path, table: list[dict[str, object]], **options: object) -> pathlib.Path:
    return trips.make(directory, table, SCHEMA, **options)


def changed(kind: str, table: list[dict[str, object]], seed: int) -> tuple[list[dict[str, object]], dict[str, int]]:
    """The source later, and how it is split then."""
    later, chance = list(table), random.Random(seed)
    if kind in ("grown", "all"):
        later += points(chance.randrange(1, 400), seed + 1, wide=1000)  # integers and strings get longer
    if kind in ("planted", "all"):
        later += table
    if kind in ("reordered", "all"):
        chance.shuffle(later)
    return later, {"split_seed": seed + 1} if kind in ("split", "all") else {}


@pytest.mark.cluster
@settings(max_examples=8)
@given(kind=st.sampled_from(["grown", "reordered", "split", "planted", "all"]), seed=st.integers(0, 10**6))
def test_training_records_are_never_scored(tmp_path_factory, kind, seed):
    root = tmp_path_factory.mktemp(kind)
    table = points(300, seed)
    later, options = changed(kind, table, seed)
    old, new = converted(root / "old", table), converted(root / "new", later, **options)
    champion, later_on = trained_on(old, root / "champion"), EvalSet.load(str(new), "test")
    chosen = later_on.unseen(str(champion))
    scored, learnt, own = rows(new, "test"), {*rows(old, "train")}, {*rows(new, "train")}
    known = np.array([row in learnt for row in scored])
    assert known.any() == (kind in ("split", "all"))  # Else every record stays in its split.
    assert chosen.tolist() == (~known).tolist()
    assert later_on.repeated.tolist() == [row in own for row in scored]
    # It knows its own dataset by what is repeated there; but also what the weights that it began with have learnt from.
    candidate = trained_on(new, root / "candidate")
    assert later_on.unseen(str(candidate)).all()
    tuned = trained_on(new, root / "tuned", before=provenance.records_of(str(champion)))
    assert (later_on.unseen(str(tuned)) == chosen).all()


def evaluated(model: pathlib.Path, data: pathlib.Path, place: pathlib.Path, *flags: object) -> dict[str, Any]:
    """The evaluation, with the champion of the registry of that place."""
    options = {"--model-dir": model, "--data-dir": data, "--output": place / "x", "--registry": place / "registry"}
    assert main([*map(str, itertools.chain(*options.items(), flags)), "--name", "m"]) == 0
    return json.loads((place / "x" / "evaluation.json").read_text())


def test_too_few_records_are_refused():
    require_enough(np.ones(3, bool), "test", "x")
    require_enough(np.arange(1000) < LEAST, "test", "x")
    with pytest.raises(UserError, match=f"only {LEAST - 1} of 1,000 records of test .* takes {LEAST}.*new records$"):
        require_enough(np.arange(1000) < LEAST - 1, "test", "x")


def test_records_of_another_form_are_refused(tmp_path):
    data = converted(tmp_path / "data", points(60, 0))
    model, here = trained_on(data, tmp_path / "model"), EvalSet.load(str(data), "test")
    features = tuple(dataclasses.replace(f, unit="km") if f.name == "x" else f for f in here.manifest.features)
    manifest = dataclasses.replace(here.manifest, features=features)
    with pytest.raises(UserError, match=f"{model}: it was trained on records with other columns"):
        dataclasses.replace(here, manifest=manifest).unseen(str(model))


def test_champion_compared_on_unseen_records(scored, make_model, tmp_path, capsys):
    """The candidate is better only where the champion was trained, which says nothing."""
    known = np.arange(len(scored.labels)) < 240
    candidate, champion = make_model(wrong=210), shutil.copytree(make_model(wrong=230), tmp_path / "champion")
    hashes = np.concatenate([*content_hashes(scored.manifest, str(scored.path), "test")])
    other = dataclasses.replace(scored.manifest, name="other")
    provenance.write(other, "m", str(champion), learnt=TrainedOn.of(other, [hashes[known]]))
    registry = DirectoryRegistry(str(tmp_path / "registry"))
    registry.promote("m", registry.register("m", str(champion), {}), instead_of=None)

    found = evaluated(candidate, scored.path, tmp_path)
    count, left = len(scored.labels), found["champion"]["examples"]
    assert left == found["champion"]["metrics"]["examples"] == found["champion"]["candidate"]["examples"]
    assert left == count - 240 and found["metrics"]["examples"] == count
    assert found["champion"]["metrics"]["accuracy"] == found["champion"]["candidate"]["accuracy"] == 1
    assert found["metrics"]["accuracy"] == pytest.approx((count - 210) / count)
    told = f"on the {left} records that neither was trained on"
    assert told in found["decision"]["why"] and told in (tmp_path / "x" / "report.html").read_text()
    assert found["decision"]["verdict"] == "register"
    # A candidate that was trained elsewhere is itself judged by the rest alone, and so is the baseline.
    own = evaluated(champion, scored.path, tmp_path)
    assert own["metrics"]["examples"] == left and own["champion"]["candidate"] is None
    assert f"judged by the {left} of {count} records of test that it was not trained on" in own["decision"]["reasons"]
    assert own["baseline"]["accuracy"] == pytest.approx(np.mean(scored.labels[~known] == 3), abs=0.1)

"""However a source changes, exactly the records that a model was not trained on are scored."""

import dataclasses
import random
import shutil

import numpy as np
import pytest
import trips
from hypothesis import given, settings
from hypothesis import strategies as st

from common import provenance
from common.manifest import Manifest
from common.provenance import TrainedOn
from components.evaluate.eval_set import LEAST, EvalSet
from tests.errors import user_error
from trainer.data.shards import content_hashes


def table(count, seed, longest=1):
    """Returns trips of which no two are alike."""
    chance = random.Random(seed)
    return [
        {**row, "when": chance.randrange(10**9), "company": "c" * chance.randrange(1, 4 * longest)}
        for row in trips.rows(count, seed)
    ]


def rows(data, split):
    columns = EvalSet.load(str(data), split).columns.values()
    return [*zip(*(column.tolist() for column in columns), strict=True)]


def trained_on(data, model, before=None):
    """Notes with a model that it was trained on a dataset, as an export does."""
    manifest = Manifest.load(data)
    learnt = TrainedOn.of(manifest, content_hashes(manifest, str(data), "train"))
    provenance.write(manifest, "m", str(model), learnt=learnt.and_before(before))
    return model


@pytest.mark.cluster
@settings(max_examples=8)
@given(st.sets(st.sampled_from(["grown", "planted", "reordered", "split"])), st.integers(0, 10**6))
def test_training_records_are_never_scored(tmp_path_factory, changes, seed):
    """A source may grow by longer values, repeat rows, and change the order or the splits."""
    root, chance = tmp_path_factory.mktemp("changed"), random.Random(seed)
    before = table(300, seed)
    later = before * (2 if "planted" in changes else 1)
    if "grown" in changes:
        later += table(chance.randrange(1, 400), seed + 1, longest=1000)
    if "reordered" in changes:
        later = chance.sample(later, len(later))
    old = trips.make(root / "old", before)
    new = trips.make(root / "new", later, split_seed=int("split" in changes))
    champion, records = trained_on(old, root / "champion"), EvalSet.load(str(new), "test")
    chosen = records.unseen(str(champion))
    scored, learnt, own = rows(new, "test"), {*rows(old, "train")}, {*rows(new, "train")}
    is_learnt = np.array([row in learnt for row in scored])
    assert is_learnt.any() == ("split" in changes)  # Else every record stays in its split.
    assert chosen.tolist() == (~is_learnt).tolist()
    assert records.repeated.tolist() == [row in own for row in scored]
    # What is repeated in a model's own dataset is known without its records; what it was tuned from
    # is not.
    assert records.unseen(str(trained_on(new, root / "candidate"))).all()
    tuned = trained_on(new, root / "tuned", before=provenance.records_of(str(champion)))
    assert (records.unseen(str(tuned)) == chosen).all()


def test_records_of_other_columns_refused(data, tmp_path):
    model, records = trained_on(data, tmp_path / "model"), EvalSet.load(str(data), "test")
    first, *others = records.manifest.features
    features = (dataclasses.replace(first, unit="km"), *others)
    manifest = dataclasses.replace(records.manifest, features=features)
    with user_error(f"{model}: it was trained on records with other columns"):
        dataclasses.replace(records, manifest=manifest).unseen(str(model))


def knowing(scored, model, path, learnt):
    """Returns a copy of a model that was trained elsewhere, on the first test records too."""
    hashes = np.concatenate([*content_hashes(scored.manifest, str(scored.path), "test")])
    other = dataclasses.replace(scored.manifest, name="other")
    shutil.copytree(model, path)
    provenance.write(other, "m", str(path), learnt=TrainedOn.of(other, [hashes[:learnt]]))
    return path


def test_champion_compared_on_unseen_records(scored, make_model, champion, evaluate, tmp_path):
    """A candidate that is better only on what the champion was trained on is no better."""
    count, left = len(scored.labels), LEAST
    learnt = count - left
    model = knowing(scored, make_model(wrong=230), tmp_path / "champion", learnt)
    flags = champion(model)

    evaluation = evaluate(make_model(wrong=210), scored.path, *flags)
    rival = evaluation["champion"]
    for figures in (rival["metrics"], rival["candidate"]):
        assert (figures["examples"], figures["accuracy"]) == (left, 1)
    assert evaluation["metrics"]["accuracy"] == pytest.approx((count - 210) / count)
    words = f"on the {left} records that neither was trained on"
    assert words in evaluation["decision"]["why"]
    assert evaluation["decision"]["verdict"] == "register"

    # A candidate that was trained elsewhere is itself judged by the rest alone.
    own = evaluate(model, scored.path, *flags)
    assert own["metrics"]["examples"] == left and own["champion"]["candidate"] is None
    note = f"judged by the {left} of {count} records of test that it was not trained on"
    assert note in own["decision"]["reasons"]
    assert "not to be promoted" not in " ".join(own["decision"]["reasons"])


def test_champion_on_few_records_incomparable(scored, make_model, champion, evaluate, tmp_path):
    count = len(scored.labels)
    model = knowing(scored, make_model(wrong=count), tmp_path / "champion", count - LEAST + 1)
    evaluation = evaluate(make_model(), scored.path, *champion(model))
    assert f"only {LEAST - 1} of {count} records" in evaluation["champion"]["incomparable"]
    assert evaluation["decision"]["verdict"] == "register"

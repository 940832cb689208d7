import contextlib
import dataclasses
import html
import json
import math
import re
import shutil

import numpy as np
import pytest

from common import provenance
from common.errors import UserError
from common.storage.files import copy_tree, tree_digest
from components.evaluate import report
from components.evaluate.__main__ import main
from components.evaluate.eval_set import EvalSet
from components.register.__main__ import main as register
from components.register.directory import DirectoryRegistry

CONFIDENCE = 0.91


@pytest.fixture
def evaluation(scored, tmp_path):
    """Runs the command; returns what it wrote."""

    def run(model, *flags, output=tmp_path / "evaluation", data=scored.path):
        assert (
            main(["--model-dir", str(model), "--data-dir", str(data), "--output", str(output), *map(str, flags)]) == 0
        )
        return json.loads((output / "evaluation.json").read_text())

    return run


@pytest.fixture
def champion(tmp_path):
    """Makes a model the champion of a new registry; returns the flags that compare with it."""

    def make(model):
        registry = DirectoryRegistry(str(tmp_path / "registry"))
        version = registry.register("digits", str(model), {"metrics": {}, "fingerprint": "other", "split": "test"})
        assert registry.promote("digits", version, instead_of=None)
        return ["--registry", str(tmp_path / "registry"), "--name", "digits"]

    return make


def test_figures_equal_hand_computation(scored, make_model, evaluation):
    found = evaluation(make_model(wrong=30, confidence=CONFIDENCE))
    count = len(scored.labels)
    assert count == scored.manifest.splits["test"].examples == found["metrics"]["examples"] > 300
    assert found["metrics"]["accuracy"] == pytest.approx((count - 30) / count, abs=1e-12)
    right, other = -math.log(CONFIDENCE), -math.log((1 - CONFIDENCE) / 9)
    assert found["metrics"]["loss"] == pytest.approx(((count - 30) * right + 30 * other) / count, abs=1e-5)
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (scored.labels, (scored.labels + (np.arange(count) < 30)) % 10), 1)
    assert found["figures"]["confusion"] == confusion.tolist()
    assert found["class_names"] == list("0123456789")
    assert [c["recall"] for c in found["figures"]["classes"]] == [row[i] / sum(row) for i, row in enumerate(confusion)]
    train, test = (np.array(scored.manifest.splits[split].class_histogram) for split in ("train", "test"))
    majority = train.argmax()
    assert test[majority] != test.max()  # the baseline is the majority class of training, another one than of test
    assert found["baseline"]["accuracy"] == pytest.approx(test[majority] / test.sum(), abs=1e-12)
    loss = -(test * np.log(train / train.sum())).sum() / test.sum()
    assert found["baseline"]["loss"] == pytest.approx(loss, abs=1e-9)


@pytest.mark.cluster
def test_store_is_evaluated_like_disk(scored, make_model, evaluation, store, tmp_path):
    copy_tree(model := make_model(wrong=30), store / "model")
    copy_tree(scored.path, store / "data")
    found = evaluation(store / "model", output=store / "evaluation", data=store / "data")
    assert {**found, "model_dir": None} == {**evaluation(model), "model_dir": None}
    flags = ["--model-dir", store / "model", "--evaluation", store / "evaluation" / "evaluation.json"]
    assert register(["add", *map(str, flags), "--registry", str(tmp_path / "registry"), "--name", "m"]) == 0
    (tmp_path / "registry" / "m" / "1" / "version.json").unlink()
    assert tree_digest(tmp_path / "registry" / "m" / "1") == tree_digest(model)


def test_validation_split_is_scored(scored, make_model, evaluation):
    found = evaluation(make_model(), "--split", "validation")
    assert found["split"] == "validation"
    histogram = scored.manifest.splits["validation"].class_histogram
    # The model knows no validation image, takes each for the first test image, and is right where that is the class.
    assert found["metrics"]["accuracy"] == pytest.approx(histogram[scored.labels[0]] / sum(histogram))


@pytest.mark.parametrize(
    ("split", "trained", "told"),
    [
        ("test", {}, ()),
        ("test", {"validation_fraction": 0.0}, ()),  # of what the test split has left
        ("validation", {"validation_fraction": 0.0}, ("validation_fraction",)),
        ("test", {"split_seed": 2**64 - 1, "test_fraction": 0.3}, ("split_seed", "test_fraction")),
    ],
)
def test_split_drawn_otherwise_is_refused(scored, tmp_path, split, trained, told):
    records = EvalSet.load(str(scored.path), split)
    assert records.unseen(str(tmp_path)).all()  # it tells nothing
    arguments = {**scored.manifest.arguments, **trained, "shards": 99}
    provenance.write(dataclasses.replace(scored.manifest, arguments=arguments), "cnn", str(tmp_path))
    with pytest.raises(UserError) if told else contextlib.nullcontext() as error:
        assert records.unseen(str(tmp_path)).all()
    assert [name for name in trained if f"{name} {trained[name]} and not" in str(error and error.value)] == [*told]


def test_champion_without_files_incomparable(make_model, evaluation, champion, tmp_path):
    flags = champion(make_model(wrong=20))
    shutil.rmtree(DirectoryRegistry(str(tmp_path / "registry")).find("digits", "1").model_dir)
    found = evaluation(make_model(wrong=10), *flags)
    assert "registry/digits/1: no SavedModel here" in found["champion"]["incomparable"]
    assert found["decision"]["verdict"] == "register"


def test_champion_of_other_split_incomparable(scored, make_model, evaluation, champion, tmp_path):
    other = dataclasses.replace(scored.manifest, arguments={**scored.manifest.arguments, "split_seed": 1})
    model = shutil.copytree(make_model(), tmp_path / "model")
    provenance.write(other, "cnn", str(model))
    found = evaluation(make_model(), *champion(model))
    assert "split_seed 1 and not 0, so it may know records of test" in found["champion"]["incomparable"]
    assert found["champion"]["metrics"] is None and found["decision"]["verdict"] == "register"
    assert "cannot be compared with the champion" in found["decision"]["reasons"][-1]
    assert "champion (version" not in report.summary(found)


def test_user_module_needed_for_own_task(scored, make_model, evaluation, tmp_path, refused):
    model = shutil.copytree(make_model(), tmp_path / "model")
    provenance.write(scored.manifest, "not_on_the_path:network", str(model))
    assert evaluation(model)["metrics"]["examples"] > 0
    provenance.write(scored.manifest, "not_on_the_path:network", str(model), task="not_on_the_path:task")
    flags = ["--model-dir", model, "--data-dir", scored.path, "--output", tmp_path / "x"]
    assert "not_on_the_path" in refused(main, *flags)


def cells(page: str) -> list[list[str]]:
    """Texts of the cells of the confusion matrix."""
    rows = re.findall(r"<tr>(.*?)</tr>", page.split('<table class="matrix">')[1], re.DOTALL)
    return [[html.unescape(text) for text in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_page_shows_counts_and_escapes(make_model, evaluation):
    found = evaluation(make_model(wrong=30))
    names = ["<b>", "<script>alert(1)</script>", *"23456789"]
    head, *shown = cells(report.page({**found, "dataset": "<u>", "class_names": names}))[:11]
    assert head == ["", *names, "recall"]
    for name, counts, i, row in zip(names, found["figures"]["confusion"], range(10), shown, strict=True):
        assert row == [name, *(str(c or "") for c in counts), f"{counts[i] / sum(counts):.3f}"]


def test_failed_evaluation_leaves_earlier_one(make_model, evaluation, scored, tmp_path, refused):
    evaluation(make_model())
    files = {path.name: path.read_bytes() for path in (tmp_path / "evaluation").iterdir()}
    assert files.keys() == {"evaluation.json", "report.html"}
    arguments = ["--data-dir", scored.path, "--model-dir"]
    refused(main, *arguments, make_model(size=9), "--output", tmp_path / "evaluation")
    assert {path.name: path.read_bytes() for path in (tmp_path / "evaluation").iterdir()} == files
    (tmp_path / "taken" / "evaluation.json").mkdir(parents=True)
    assert "cannot write " in refused(main, *arguments, make_model(), "--output", tmp_path / "taken")
    assert {path.name for path in (tmp_path / "taken").iterdir()} == {"evaluation.json", "report.html"}

import contextlib
import dataclasses
import html
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


def test_figures_equal_hand_computation(scored, make_model, evaluate):
    evaluation = evaluate(make_model(wrong=30, confidence=0.91), scored.path)
    metrics, figures, baseline = (evaluation[key] for key in ("metrics", "figures", "baseline"))
    count = len(scored.labels)
    assert count == metrics["examples"] > 300
    assert metrics["accuracy"] == pytest.approx((count - 30) / count, abs=1e-12)
    loss = -(count - 30) * math.log(0.91) - 30 * math.log(0.01)
    assert metrics["loss"] == pytest.approx(loss / count, abs=1e-5)
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (scored.labels, (scored.labels + (np.arange(count) < 30)) % 10), 1)
    assert figures["confusion"] == confusion.tolist()
    assert [row["recall"] for row in figures["classes"]] == (
        confusion.diagonal() / confusion.sum(axis=1)
    ).tolist()
    train, test = (
        np.array(scored.manifest.splits[split].class_histogram) for split in ("train", "test")
    )
    majority = train.argmax()
    assert (
        test[majority] != test.max()
    )  # The majority class of training is another one than of test.
    assert baseline["accuracy"] == pytest.approx(test[majority] / count, abs=1e-12)
    assert baseline["loss"] == pytest.approx(
        -(test * np.log(train / train.sum())).sum() / count, abs=1e-9
    )


@pytest.mark.cluster
def test_store_is_evaluated_like_disk(scored, make_model, evaluate, store, tmp_path):
    model = make_model(wrong=30)
    copy_tree(model, store / "model")
    copy_tree(scored.path, store / "data")
    evaluation = evaluate(store / "model", store / "data", output=store / "evaluation")
    assert {**evaluation, "model_dir": None} == {**evaluate(model, scored.path), "model_dir": None}
    flags = [
        "--model-dir",
        store / "model",
        "--evaluation",
        store / "evaluation" / "evaluation.json",
    ]
    register(["add", *map(str, flags), "--registry", str(tmp_path / "registry"), "--name", "m"])
    version = tmp_path / "registry" / "m" / "1"
    (version / "version.json").unlink()
    assert tree_digest(version) == tree_digest(model)


def test_validation_split_is_scored(scored, make_model, evaluate):
    evaluation = evaluate(make_model(), scored.path, "--split", "validation")
    assert evaluation["split"] == "validation"
    histogram = scored.manifest.splits["validation"].class_histogram
    # The model takes each image that it does not know for the first test image.
    assert evaluation["metrics"]["accuracy"] == pytest.approx(
        histogram[scored.labels[0]] / sum(histogram)
    )


@pytest.mark.parametrize(
    ("split", "trained", "refused"),
    [
        ("test", {"validation_fraction": 0.0}, False),  # Of what the test split has left.
        ("validation", {"validation_fraction": 0.0}, True),
        ("test", {"split_seed": 2**64 - 1, "test_fraction": 0.3}, True),
    ],
)
def test_split_drawn_otherwise_is_refused(scored, tmp_path, split, trained, refused):
    records = EvalSet.load(str(scored.path), split)
    assert records.unseen(str(tmp_path)).all()  # Nothing is known of the model.
    arguments = {**scored.manifest.arguments, **trained, "shards": 99}
    provenance.write(
        dataclasses.replace(scored.manifest, arguments=arguments), "cnn", str(tmp_path)
    )
    words = ".*".join(f"{name} {value} and not" for name, value in trained.items())
    with pytest.raises(UserError, match=words) if refused else contextlib.nullcontext():
        assert records.unseen(str(tmp_path)).all()


def test_champion_without_files_incomparable(scored, make_model, evaluate, champion, tmp_path):
    flags = champion(make_model(wrong=20))
    shutil.rmtree(DirectoryRegistry(str(tmp_path / "registry")).find("m", "1").model_dir)
    evaluation = evaluate(make_model(wrong=10), scored.path, *flags)
    assert "registry/m/1: no SavedModel here" in evaluation["champion"]["incomparable"]
    assert evaluation["decision"]["verdict"] == "register"


def test_champion_of_other_split_incomparable(scored, make_model, evaluate, champion, tmp_path):
    other = dataclasses.replace(
        scored.manifest, arguments={**scored.manifest.arguments, "split_seed": 1}
    )
    model = shutil.copytree(make_model(), tmp_path / "model")
    provenance.write(other, "cnn", str(model))
    evaluation = evaluate(make_model(), scored.path, *champion(model))
    rival, decision = evaluation["champion"], evaluation["decision"]
    assert "split_seed 1 and not 0, so it may know records of test" in rival["incomparable"]
    assert rival["metrics"] is None and decision["verdict"] == "register"
    assert "cannot be compared with the champion" in decision["reasons"][-1]
    assert "champion (version" not in report.summary(evaluation)


def test_user_module_needed_for_own_task(scored, make_model, evaluate, tmp_path, refused):
    model = shutil.copytree(make_model(), tmp_path / "model")
    provenance.write(scored.manifest, "not_on_the_path:network", str(model))
    assert evaluate(model, scored.path)["metrics"]["examples"] > 0
    provenance.write(
        scored.manifest, "not_on_the_path:network", str(model), task="not_on_the_path:task"
    )
    flags = ["--model-dir", model, "--data-dir", scored.path, "--output", tmp_path / "x"]
    assert "not_on_the_path" in refused(main, *flags)


def test_page_shows_counts_and_escapes(scored, make_model, evaluate):
    evaluation = evaluate(make_model(wrong=30), scored.path)
    names = ["<b>", "<script>alert(1)</script>", *"23456789"]
    page = report.page({**evaluation, "dataset": "<u>", "class_names": names})
    matrix = page.partition('<table class="matrix">')[2].partition("</table>")[0]
    cells = [html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", matrix)]
    expected = ["", *names, "recall"]
    for i, (name, counts) in enumerate(zip(names, evaluation["figures"]["confusion"], strict=True)):
        expected += [
            name,
            *(str(count or "") for count in counts),
            f"{counts[i] / sum(counts):.3f}",
        ]
    assert cells == expected
    assert not re.search("<(u|b|script>alert)>?", matrix)


def test_failed_evaluation_leaves_earlier_one(make_model, evaluate, scored, tmp_path, refused):
    evaluate(make_model(), scored.path)
    output = tmp_path / "evaluation"
    files = {path.name: path.read_bytes() for path in output.iterdir()}
    assert files.keys() == {"evaluation.json", "report.html"}
    flags = ["--data-dir", scored.path, "--output", output, "--model-dir"]
    refused(main, *flags, make_model(size=9))
    assert {path.name: path.read_bytes() for path in output.iterdir()} == files
    (output / "evaluation.json").unlink()
    (output / "evaluation.json").mkdir()
    assert "cannot write " in refused(main, *flags, make_model())
    assert {path.name for path in output.iterdir()} == files.keys()

import dataclasses
import math
import re
import shutil

import numpy as np
import pytest

from common import provenance
from components.evaluate import report
from components.evaluate.__main__ import main
from trainer.job.done import Done


def test_figures_equal_hand_computation(scored, make_model, evaluate):
    evaluation = evaluate(make_model(wrong=30, confidence=0.91), scored.path)
    metrics, baseline = evaluation["metrics"], evaluation["baseline"]
    count = len(scored.labels)
    assert count == metrics["examples"] > 300
    assert metrics["accuracy"] == pytest.approx((count - 30) / count)
    loss = -(count - 30) * math.log(0.91) - 30 * math.log(0.01)
    assert metrics["loss"] == pytest.approx(loss / count, abs=1e-5)
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (scored.labels, (scored.labels + (np.arange(count) < 30)) % 10), 1)
    assert evaluation["figures"]["confusion"] == confusion.tolist()
    splits = scored.manifest.splits
    train, test = (np.array(splits[name].class_histogram) for name in ("train", "test"))
    # The majority class of training is another one than of test.
    assert test[train.argmax()] != test.max()
    assert baseline["accuracy"] == pytest.approx(test[train.argmax()] / count)
    assert baseline["loss"] == pytest.approx(-(test * np.log(train / train.sum())).sum() / count)


@pytest.mark.parametrize(("learnt", "is_noted"), [(0.99, True), (0.95, False)])
def test_loss_of_accuracy_is_noted(scored, make_model, evaluate, tmp_path, learnt, is_noted):
    job = tmp_path / "job"
    shutil.copytree(make_model(wrong=80), job / "model")
    facts = {"validation": {}, "stopped_early": None, "examples_per_s": 1.0, "accuracy": learnt}
    Done(step=9, epochs=1.0, loss=0.0, seconds=1.0, **facts).save(str(job))
    reasons = "\n".join(evaluate(job / "model", scored.path)["decision"]["reasons"])
    assert (f"training ended with accuracy {learnt:.4f}, and here it is 0.7" in reasons) == is_noted


@pytest.mark.parametrize(
    ("is_gone", "why"),
    [(True, "registry/m/1: no SavedModel here"), (False, "split_seed 1 and not 0, so it may know")],
)
def test_unusable_champion_is_incomparable(
    scored, make_model, evaluate, champion, tmp_path, is_gone, why
):
    arguments = {**scored.manifest.arguments, "split_seed": 1}
    model = shutil.copytree(make_model(wrong=20), tmp_path / "model")
    provenance.write(dataclasses.replace(scored.manifest, arguments=arguments), "cnn", str(model))
    flags = champion(model)
    if is_gone:
        shutil.rmtree(tmp_path / "registry/m/1")
    evaluation = evaluate(make_model(), scored.path, *flags)
    decision = evaluation["decision"]
    assert why in evaluation["champion"]["incomparable"] and decision["verdict"] == "register"
    assert "cannot be compared with the champion" in decision["reasons"][-1]
    assert "champion (version" not in report.summary(evaluation)


def test_user_module_needed_for_own_task(scored, make_model, evaluate, tmp_path, refused):
    model, module = shutil.copytree(make_model(), tmp_path / "model"), "not_on_the_path:it"
    provenance.write(scored.manifest, module, str(model))
    assert evaluate(model, scored.path)["metrics"]["examples"] > 0
    provenance.write(scored.manifest, module, str(model), task=module)
    flags = ["--model-dir", model, "--data-dir", scored.path, "--output", tmp_path / "x"]
    assert "not_on_the_path" in refused(main, *flags)


def test_page_shows_counts_and_escapes(scored, make_model, evaluate):
    evaluation = evaluate(make_model(wrong=30), scored.path)
    names = ["<x>", "<script>alert(1)</script>", *"23456789"]
    page = report.page({**evaluation, "dataset": "<x>", "class_names": names})
    assert not re.search("<(x|script>alert)", page)
    matrix = page.partition('<table class="matrix">')[2].partition("</table>")[0]
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", matrix)
    counts = [str(count or "") for count in evaluation["figures"]["confusion"][1]]
    assert cells[25:35] == counts

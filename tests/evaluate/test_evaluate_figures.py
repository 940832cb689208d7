"""Figures equal their definitions, written as loops over records; curves of the training."""

import json

import numpy as np
import pytest

from common.documents import plain
from components.evaluate.categories import Categories
from components.evaluate.figures import figures
from components.evaluate.plots import learning_curves
from components.evaluate.report import section


def test_two_classes_have_curves():
    """A point is what its threshold makes; there are at most 101."""

    def curves(scores, labels):
        answers = np.stack([1 - scores, scores], axis=1)
        return plain(figures("classification", ["no", "yes"], answers, labels))

    scores = np.array([0.1, 0.4, 0.3, 0.8])
    values = curves(scores, np.array([0, 0, 1, 1]))
    assert values["roc"] == [[0, 0, 1], [0, 0.5, 0.8], [0.5, 0.5, 0.4], [0.5, 1, 0.3], [1, 1, 0.1]]
    points = [[0.5, 1, 0.8], [0.5, 0.5, 0.4], [1, 2 / 3, 0.3], [1, 0.5, 0.1]]
    assert values["precision_recall"]["points"] == points
    roc = curves(np.linspace(0, 1, 300), np.arange(300) % 2)["roc"]
    assert (len(roc), roc[0], roc[-1]) == (101, [0, 0, 1], [1, 1, 0])
    assert "roc" not in curves(scores, np.ones(4, int))


def test_figures_by_class_and_target():
    answers = np.array([[0.9, 0.2], [0.6, 0.7], [0.1, 0.5]])
    labels = np.array([[1, 0], [0, 1], [1, 1]])
    rain, never = figures("multi_label", ["rain", "never"], answers, labels * [1, 0])["classes"]
    assert rain == {"name": "rain", "records": 2, "precision": 0.5, "recall": 0.5, "f1": 0.5}
    assert plain(never["recall"]) is None
    numbers = np.arange(10.0)[::-1, np.newaxis]
    of_target = figures("regression", ["tip"], numbers, 3 * numbers)
    (errors,), (calibration,) = of_target["residuals"], of_target["calibration"]
    assert errors["mean"] == errors["quantiles"]["0.5"] == -9
    assert calibration["points"] == [[2, 6], [7, 21]]  # Groups of five near predictions.


def test_categories_of_numbers_and_texts():
    values = np.arange(1000, dtype=np.float32)
    quarters = Categories(values, 24, 4)
    assert quarters.names()[:2] == ["x < 249.75", "249.75 <= x < 499.5"]
    assert np.bincount(quarters.of(values)).tolist() == [250] * 4
    companies = np.array([b"c%d" % min(i, 500 - i) for i in range(500)], object)
    frequent = Categories(companies, 24, 4)
    assert len(frequent) == 25 and frequent.names()[-1] == "227 others"
    assert frequent.of(np.array([b"never seen"], object)) == 24


def write(job, attempt, *events):
    """Writes the chief's journal, whose events are each (event, step, fields)."""
    lines = [
        json.dumps({"event": event, "step": step, "time": 1e9 + attempt, **dict(*more)}) + "\n"
        for event, step, *more in events
    ]
    job.mkdir(exist_ok=True)
    (job / f"journal-chief-0-{attempt}.jsonl").write_text("".join(lines))


def step(step, loss):
    return "step", step, {"loss": loss, "seconds": 2.0, "learning_rate": 0.1}


def test_repeated_steps_count_once(tmp_path):
    """Steps that were made again after a kill count by their newest event."""
    evaluation = "evaluation", 40, {"loss": 5.0, "best": True, "seconds": 2.0}
    write(tmp_path, 0, ("machine", 0), ("start", 0), step(10, 9), step(20, 8), step(40, 77))
    write(tmp_path, 1, ("resume", 20), step(25, 7), step(40, 6), evaluation, ("done", 40))
    loss, rate = learning_curves(str(tmp_path))
    assert "training 6 at step 40; validation 5 at step 40" in loss
    assert "learning rate" in rate


@pytest.mark.parametrize("events", [[], [("machine", 0)], [("start", 0), step(1, 1)]])
def test_job_hardly_begun_has_page(tmp_path, events):
    write(tmp_path, 0, *events)
    assert "Learning curves" not in section({}, str(tmp_path))
    assert not section({}, f"{tmp_path}/nothing").strip()

"""Figures equal their definitions, written as loops over records."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.evaluate.details.figures import calibration, figures, precision_recall
from components.evaluate.details.parts import in_words, parts
from components.evaluate.details.worst import badness
from components.evaluate.eval_set import EvalSet
from components.evaluate.score import Answers
from trainer.tasks.classification import Classification
from trainer.tasks.regression import Regression
from trainer.tasks.task import Task


@st.composite
def classified(draw, most: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that often are equal, and labels."""
    classes, count = draw(st.integers(2, most)), draw(st.integers(1, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    scores = random.integers(1, draw(st.integers(2, 9)), (count, classes)).astype(float)
    return (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32), random.integers(0, classes, count)


def answered(task: Task, answers: np.ndarray, labels: np.ndarray) -> Answers:
    records = EvalSet(manifest=None, data_dir="", split="test", task=task)
    return Answers(records=records, positions=np.arange(len(labels)), answers=answers, labels=labels)


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@given(classified())
def test_classes_have_precision_recall_f1_and_top_k(data):
    answers, labels = data
    said, names = answers.argmax(axis=1), list("abcd")[: answers.shape[1]]
    found = figures("classification", names, answers, labels)
    for i, shown in enumerate(found["classes"]):
        hits, positives, records = (int(each.sum()) for each in ((said == i) & (labels == i), said == i, labels == i))
        ratios = {"precision": share(hits, positives), "recall": share(hits, records)}
        assert shown == {"name": names[i], "records": records, **ratios, "f1": share(2 * hits, positives + records)}
    for k, value in found["top_k"].items():
        among = [sum(p > row[t] for p in row) < int(k) for row, t in zip(answers.tolist(), labels, strict=True)]
        assert value == pytest.approx(np.mean(among))
    assert ("thresholds" in found) == (len(names) == 2)
    json.dumps(found, allow_nan=False)


@given(classified())
def test_calibration_error_is_over_ten_bins(data):
    answers, labels = data
    confidence, right = answers.max(axis=1).astype(float), answers.argmax(axis=1) == labels
    found, at = calibration(confidence, right), np.minimum((confidence * 10).astype(int), 9)
    inside = [at == i for i in range(10) if (at == i).any()]
    assert [each["records"] for each in found["bins"]] == [each.sum() for each in inside]
    gaps = [abs(confidence[each].sum() - right[each].sum()) for each in inside]
    assert found["ece"] == pytest.approx(sum(gaps) / len(labels))


@given(classified(most=2))
def test_two_classes_have_a_curve_of_precision_and_recall(data):
    answers, labels = data
    scores, positive = answers[:, 1], labels == 1
    for shown in figures("classification", ["no", "yes"], answers, labels)["thresholds"]:
        said = scores >= shown["threshold"]
        assert shown["precision"] == share(int((said & positive).sum()), int(said.sum()))
    if positive.all() or not positive.any():
        return
    found = precision_recall(scores, positive)
    area, before = 0.0, 0.0
    for recall, precision, threshold in found["points"]:
        said = scores >= threshold
        hits = (said & positive).sum()
        assert (recall, precision) == (pytest.approx(hits / positive.sum()), pytest.approx(hits / said.sum()))
        area, before = area + (recall - before) * precision, recall
    assert before == 1 and found["average_precision"] == pytest.approx(area)  # no point is left out of so few


def test_of_several_labels_each_by_itself_and_of_numbers_the_quantiles_of_what_is_said_too_much():
    answers, labels = np.array([[0.9, 0.2], [0.6, 0.7], [0.1, 0.5]]), np.array([[1, 0], [0, 1], [1, 1]])
    rain, wind = figures("multi_label", ["rain", "wind"], answers, labels)["classes"]
    assert rain == {"name": "rain", "records": 2, "precision": 0.5, "recall": 0.5, "f1": 0.5}
    assert wind == {"name": "wind", "records": 2, "precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3)}
    truth = np.random.default_rng(0).normal(size=999).astype(np.float32)
    (found,) = figures("regression", ["tip"], (truth + np.arange(999) / 998)[:, np.newaxis], truth)["residuals"]
    assert found["mean"] == pytest.approx(0.5)
    assert all(value == pytest.approx(float(q), abs=1e-6) for q, value in found["quantiles"].items())
    assert figures("own", ["x"], answers, labels) == {}


@given(classified())
def test_parts_have_the_metrics_of_their_records_alone(data):
    answers, labels = data
    of = answered(Classification(tuple("abcd")), answers, labels)
    words = np.array(["Bonn", "Köln"], object)[np.arange(len(labels)) % 2]
    shown = parts(of, words)
    assert sum(part["records"] for part in shown) == len(labels)
    for part in shown:
        assert part["metrics"] == of.of(words == part["value"]).measure()


def test_numbers_are_quartered_and_rare_texts_are_together():
    names, counts = np.unique(in_words(np.arange(1000, dtype=np.float32)), return_counts=True)
    assert set(names) == {"x <= 249", "249 < x <= 499", "499 < x <= 749", "x > 749"} and set(counts) == {250}
    companies = np.array([b"c%d" % min(i, 500 - i) for i in range(500)], object)
    assert len(set(in_words(companies))) == 25
    assert in_words(np.array([3, 1, 3])).tolist() == ["3", "1", "3"]


def test_the_worst_part_is_first():
    of = answered(Regression(("tip",), (1.0,)), np.float32([[1], [2], [9]]), np.float32([1, 2, 3]))
    assert [part["value"] for part in parts(of, np.array(["0", "0", "1"]))] == ["1", "0"]


def test_the_worst_answer_is_the_one_that_is_surest_of_something_wrong():
    answers = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])
    assert badness("classification", answers, np.array([1, 1, 0])) == pytest.approx([0.8, 0.0, 0.6])
    assert badness("multi_label", answers, np.array([[1, 1], [1, 1], [0, 1]])) == pytest.approx([0.4, 0.1, -0.3])
    # Of two targets each counts by its own mean error.
    assert badness("regression", np.array([[1.0, 100], [0, 0]]), np.zeros((2, 2))) == pytest.approx([2, 0])
    assert badness("own", answers, answers) is None

"""Figures equal their definitions, written as loops over records."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from common.documents import plain
from components.evaluate.categories import Categories
from components.evaluate.eval_set import EvalSet
from components.evaluate.figures import figures
from components.evaluate.score import Answers
from components.evaluate.slices import slices
from trainer.tasks.of_dataset import Classification, Regression
from trainer.tasks.task import Task


@st.composite
def classified(draw, most: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Draws probabilities, which often are equal, and labels."""
    classes, count = draw(st.integers(2, most)), draw(st.integers(1, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    scores = random.integers(1, draw(st.integers(2, 9)), (count, classes)).astype(float)
    return (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32), random.integers(
        0, classes, count
    )


def answered(task: Task, answers: np.ndarray, labels: np.ndarray) -> Answers:
    records = EvalSet(manifest=None, data_dir="", split="test", task=task)
    return Answers(
        records=records, positions=np.arange(len(labels)), answers=answers, labels=labels
    )


def share(part: int, total: int) -> float | None:
    return part / total if total else None


@given(classified())
def test_figures_by_class_and_top_k(data):
    """Each class has its shares; top k counts labels with fewer than k likelier classes."""
    answers, labels = data
    predicted, names = answers.argmax(axis=1), list("abcd")[: answers.shape[1]]
    values = plain(figures("classification", names, answers, labels))
    for i, row in enumerate(values["classes"]):
        hits, positives, records = (
            int(each.sum())
            for each in ((predicted == i) & (labels == i), predicted == i, labels == i)
        )
        ratios = {"precision": share(hits, positives), "recall": share(hits, records)}
        ratios["f1"] = share(2 * hits, positives + records)
        assert row == pytest.approx({"name": names[i], "records": records, **ratios})
    chances = answers[np.arange(len(labels)), labels][:, np.newaxis]
    for k, value in values["top_k"].items():
        least = ((answers >= chances).sum(axis=1) <= int(k)).mean()
        most = ((answers > chances).sum(axis=1) < int(k)).mean()
        assert least - 1e-9 <= value <= most + 1e-9


@given(classified(most=2))
def test_two_classes_have_curves(data):
    """Every point of a curve is what its threshold makes."""
    answers, labels = data
    scores, positive = answers[:, 1], labels == 1
    values = plain(figures("classification", ["no", "yes"], answers, labels))
    if positive.all() or not positive.any():
        assert "roc" not in values
        return
    for miss, hit, threshold in values["roc"][1:]:
        predicted = scores >= threshold
        assert (miss, hit) == pytest.approx(
            (predicted[~positive].mean(), predicted[positive].mean())
        )
    misses, hits, thresholds = np.transpose(values["roc"])
    assert (
        np.trapezoid(hits, misses) == pytest.approx(roc_auc_score(positive, scores))
        and thresholds[0] == 1
    )
    area, before = 0.0, 0.0
    for recall, precision, threshold in values["precision_recall"]["points"]:
        predicted = scores >= threshold
        assert (recall, precision) == pytest.approx(
            (predicted[positive].mean(), positive[predicted].mean())
        )
        area += (recall - before) * precision
        before = recall
    assert before == 1 and values["precision_recall"]["average_precision"] == pytest.approx(area)


def test_long_curve_thinned():
    scores = np.random.default_rng(0).random(5000)
    answers = np.stack([1 - scores, scores], axis=1)
    roc = figures("classification", ["no", "yes"], answers, (scores > 0.5).astype(int))["roc"]
    assert len(roc) <= 101 and (roc[0][:2], roc[-1][:2]) == ([0, 0], [1, 1])


def test_figures_of_labels_and_numbers():
    answers, labels = (
        np.array([[0.9, 0.2], [0.6, 0.7], [0.1, 0.5]]),
        np.array([[1, 0], [0, 1], [1, 1]]),
    )
    rain, wind = figures("multi_label", ["rain", "wind"], answers, labels)["classes"]
    assert rain == {"name": "rain", "records": 2, "precision": 0.5, "recall": 0.5, "f1": 0.5}
    assert wind == {
        "name": "wind",
        "records": 2,
        "precision": 1.0,
        "recall": 0.5,
        "f1": pytest.approx(2 / 3),
    }
    truth = np.random.default_rng(0).normal(size=999).astype(np.float32)
    errors = np.linspace(0, 1, 999)
    (residuals,) = figures("regression", ["tip"], (truth + errors)[:, np.newaxis], truth)[
        "residuals"
    ]
    assert residuals["mean"] == pytest.approx(0.5)
    assert residuals["quantiles"] == pytest.approx(
        {q: float(q) for q in residuals["quantiles"]}, abs=1e-6
    )
    assert figures("own", ["x"], answers, labels) == {}


@given(classified())
def test_slices_have_metrics_of_their_records(data):
    """Every record is in one slice, whose metrics are those of its records."""
    answers, labels = data
    task = Classification(tuple("abcd"))
    words = np.array([b"Bonn", b"K\xc3\xb6ln"], object)[np.arange(len(labels)) % 2]
    parts = slices(answered(task, answers, labels), words)
    assert sum(part["records"] for part in parts) == len(labels)
    for part in parts:
        chosen = words == part["value"].encode()
        assert part["metrics"] == task.measure(answers[chosen], labels[chosen])


def test_categories_of_numbers_and_texts():
    values = np.arange(1000, dtype=np.float32)
    quarters = Categories(values, 24, 4)
    assert quarters.names() == [
        "x < 249.75",
        "249.75 <= x < 499.5",
        "499.5 <= x < 749.25",
        "x >= 749.25",
    ]
    assert np.bincount(quarters.of(values)).tolist() == [250] * 4
    companies = np.array([b"c%d" % min(i, 500 - i) for i in range(500)], object)
    frequent = Categories(companies, 24, 4)
    assert len({*frequent.of(companies).tolist()}) == len(frequent) == 25
    assert frequent.names()[-1] == "227 others"
    assert frequent.of(np.array([b"never seen"], object)) == 24
    few = Categories(np.array([3, 1, 3]), 24, 4)
    assert few.of(np.array([3, 1])).tolist() == [1, 0] and few.names()[:2] == ["1", "3"]


def test_worst_slice_is_first():
    answers = answered(
        Regression(("tip",), (1.0,)), np.float32([[1], [2], [9]]), np.float32([1, 2, 3])
    )
    assert [part["value"] for part in slices(answers, np.array([0, 0, 1]))] == ["1", "0"]

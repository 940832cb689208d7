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
def test_figures_by_class_and_top_k(data):
    answers, labels = data
    said, names = answers.argmax(axis=1), list("abcd")[: answers.shape[1]]
    found = plain(figures("classification", names, answers, labels))
    for i, shown in enumerate(found["classes"]):
        hits, positives, records = (int(each.sum()) for each in ((said == i) & (labels == i), said == i, labels == i))
        ratios = {"precision": share(hits, positives), "recall": share(hits, records)}
        ratios["f1"] = share(2 * hits, positives + records)
        assert shown == pytest.approx({"name": names[i], "records": records, **ratios})
    for k, value in found["top_k"].items():  # of equally likely classes either may be the likelier
        better = [sum(p > row[t] for p in row) < int(k) for row, t in zip(answers.tolist(), labels, strict=True)]
        no_worse = [sum(p >= row[t] for p in row) <= int(k) for row, t in zip(answers.tolist(), labels, strict=True)]
        assert np.mean(no_worse) - 1e-9 <= value <= np.mean(better) + 1e-9


@given(classified(most=2))
def test_two_classes_have_curves(data):
    """Every point of a curve is what its threshold makes."""
    answers, labels = data
    scores, positive = answers[:, 1], labels == 1
    found = plain(figures("classification", ["no", "yes"], answers, labels))
    if positive.all() or not positive.any():
        assert "roc" not in found
        return
    for miss, hit, threshold in found["roc"][1:]:
        said = scores >= threshold
        assert (miss, hit) == (pytest.approx(said[~positive].mean()), pytest.approx(said[positive].mean()))
    misses, hits, thresholds = np.transpose(found["roc"])
    assert np.trapezoid(hits, misses) == pytest.approx(roc_auc_score(positive, scores)) and thresholds[0] == 1
    area, before = 0.0, 0.0
    for recall, precision, threshold in found["precision_recall"]["points"]:
        said = scores >= threshold
        count = (said & positive).sum()
        assert (recall, precision) == (pytest.approx(count / positive.sum()), pytest.approx(count / said.sum()))
        area, before = area + (recall - before) * precision, recall
    assert before == 1 and found["precision_recall"]["average_precision"] == pytest.approx(area)


def test_long_curve_thinned():
    scores = np.random.default_rng(0).random(5000)
    found = figures("classification", ["no", "yes"], np.stack([1 - scores, scores], 1), (scores > 0.5).astype(int))
    roc = found["roc"]
    assert len(roc) <= 101 and (roc[0][:2], roc[-1][:2]) == ([0, 0], [1, 1])


def test_figures_of_labels_and_numbers():
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
def test_slices_have_metrics_of_their_records(data):
    answers, labels = data
    of = answered(Classification(tuple("abcd")), answers, labels)
    words = np.array([b"Bonn", b"K\xc3\xb6ln"], object)[np.arange(len(labels)) % 2]
    shown = slices(of, words)
    assert sum(part["records"] for part in shown) == len(labels)
    for part in shown:
        assert part["metrics"] == of.of(words == part["value"].encode()).measure()


def test_categories_of_numbers_and_texts():
    numbers = np.arange(1000, dtype=np.float32)
    quarters = Categories(numbers, 24, 4)
    assert quarters.names() == ["x < 249.75", "249.75 <= x < 499.5", "499.5 <= x < 749.25", "x >= 749.25"]
    assert np.bincount(quarters.of(numbers)).tolist() == [250] * 4
    companies = np.array([b"c%d" % min(i, 500 - i) for i in range(500)], object)
    kept = Categories(companies, 24, 4)
    assert len({*kept.of(companies).tolist()}) == len(kept) == 25 and kept.names()[-1] == "227 others"
    assert kept.of(np.array([b"never seen"], object)) == 24
    few = Categories(np.array([3, 1, 3]), 24, 4)
    assert few.of(np.array([3, 1])).tolist() == [1, 0] and few.names()[:2] == ["1", "3"]


def test_worst_slice_is_first():
    of = answered(Regression(("tip",), (1.0,)), np.float32([[1], [2], [9]]), np.float32([1, 2, 3]))
    assert [part["value"] for part in slices(of, np.array([0, 0, 1]))] == ["1", "0"]

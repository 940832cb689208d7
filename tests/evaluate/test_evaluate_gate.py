"""The rules of a gate, and comparisons with a champion."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.evaluate.__main__ import main
from components.evaluate.comparing import beat, gate_comparisons
from components.evaluate.eval_set import EvalSet
from components.evaluate.gate import BASELINE, CHAMPION, Comparison, Gate, decide
from components.evaluate.options import Options
from components.evaluate.score import Answers
from tests.root import ROOT
from trainer.tasks.of_dataset import Classification, MultiLabel, Regression

DEFAULT = ROOT / "gates/default.yaml"
PLACES = {"model_dir": "m", "data_dir": "d", "output": "o"}


@pytest.fixture
def answers(data):
    """Random answers to a table, which mostly are right."""
    records = EvalSet.load(str(data), "test")
    labels = records.columns["label"]
    chance = np.random.default_rng(0).random(len(labels)) * 0.5 + labels * 0.3
    probabilities = np.stack([1 - chance, chance], axis=1)
    return Answers(
        records=records, answers=probabilities, labels=labels, positions=np.arange(len(labels))
    )


def judge(answers, gate):
    return [*gate_comparisons(Gate.of(gate), answers, answers.measure())]


def test_default_file_equals_defaults():
    content = DEFAULT.read_text()
    assert Gate.of(content) == Gate()
    assert all(f"{key}:" in content for key in Gate.model_fields)


def test_slices_are_judged_by_own_records(answers):
    """A slice passes that reaches the threshold exactly, and one of few records unjudged."""
    right = answers.answers.argmax(axis=1) == answers.labels
    companies = answers.records.columns["company"]
    limit = right[companies == b"Green"].mean()
    least = (companies == b"Green").sum()
    gate = f"slices: {{company: {{accuracy: {limit}}}}}\nslice_records: {least}"
    expected = {}
    for value in np.unique(companies):
        chosen = companies == value
        count, share = chosen.sum(), right[chosen].mean()
        words = f"accuracy of company {value.decode()} ({count} records) "
        if count < least:
            words += f"is not judged: it takes {least}"
        else:
            fate = "reaches" if share >= limit else "misses"
            words += f"{share:.4f} {fate} the threshold {limit:.4f}"
        expected[words] = bool(count < least or share >= limit)
    assert {each.words: each.passed for each in judge(answers, gate)} == expected
    assert [*expected.values()].count(True) > 1 and False in expected.values()


def test_undefined_metric_not_judged(answers):
    comparisons = judge(answers, "thresholds: {auc: 0.6, loss: 0.1}\nslices: {label: {auc: 0.9}}")
    assert [comparison.metric for comparison in comparisons if not comparison.passed] == ["loss"]
    assert comparisons[-1].words.endswith("is not judged: they do not define it")


@pytest.mark.parametrize(
    ("content", "message"),
    {
        b"treshold: {}": "unknown key 'treshold'; did you mean 'thresholds'?",
        b"thresholds: {auc: .nan}": "thresholds.auc: nan should be a finite number",
        b"slices: {label: {accuracy: 97}}": "a threshold of accuracy: 97 is not from 0 to 1",
        b"\xff": "gate.yaml: ",
    }.items(),
)
def test_wrong_gate_file_is_error(tmp_path, refused, content, message):
    path = tmp_path / "gate.yaml"
    path.write_bytes(content)
    line = refused(main, "--model-dir", "m", "--data-dir", "d", "--output", "o", "--gate", path)
    assert line.startswith(f"error: --gate {path}: ") and message in line


def test_flags_override_gate_file(tmp_path):
    path = tmp_path / "gate.yaml"
    path.write_text("thresholds: {auc: 0.5, accuracy: 0.6}\nconfidence: none\nmargin: 0.01")
    options = Options(**PLACES, gate=str(path), min_auc=0.7, threshold="loss=2")
    path.unlink()
    parsed = Options.parse(options.as_flags(but=PLACES), "step", **PLACES)
    assert parsed == options
    assert parsed.limits == Gate(
        thresholds={"auc": 0.7, "accuracy": 0.6, "loss": 2.0}, confidence=None, margin=0.01
    )


@pytest.mark.parametrize(
    ("passed", "verdict", "why"),
    [
        ("threshold champion", "reject", "of baseline"),
        ("champion", "reject", "of threshold; of baseline"),
        ("threshold baseline", "register", "of champion"),
        ("threshold baseline champion", "promote", "of champion"),
    ],
)
def test_verdict_follows_from_comparisons(passed, verdict, why):
    comparisons = [
        Comparison(who=who, passed=who in passed, words=f"of {who}", metric="auc")
        for who in ("threshold", BASELINE, CHAMPION)
    ]
    decision = decide("auc", comparisons, notes=["n"])
    assert (decision["verdict"], decision["why"]) == (verdict, why)
    assert decision["reasons"] == ["of threshold", "of baseline", "of champion", "n"]


TWO, FOUR = Classification(("no", "yes")), Classification(tuple("abcd"))
LABELS = MultiLabel(("a", "b"))
NUMBER = Regression(("fare",), (1.0,))
NUMBERS = Regression(("fare", "tip"), (1.0, 2.0))


def answered(n, seed):
    """Returns random answers of two models to records, many of them equal, and the labels."""
    draw = np.random.default_rng(seed)
    return *draw.integers(1, 9, (2, n, 2)) / 9, draw.integers(2, size=(n, 2))


def compared(ours, theirs, labels=None, *, task=FOUR, **options):
    labels = np.zeros(len(ours), int) if labels is None else labels
    records = EvalSet(manifest=None, data_dir="", split="test", task=task)
    answers = Answers(
        records=records, positions=np.arange(len(labels)), answers=ours, labels=labels
    )
    return beat(CHAMPION, "the champion", answers, theirs, **{"confidence": 0.95, **options})


def hits(count):
    """Returns answers of a model that takes the right class, 0, for so many of 400 records."""
    return np.eye(4)[np.where(np.arange(400) < count, 0, 1)]


def test_permutation_p_counts_swaps():
    """All swaps of few records count; of many, a quarter moves all or none of three answers."""
    theirs = 0.1 * np.arange(1, 9).reshape(8, 1)
    assert compared(np.zeros((8, 1)), theirs, np.zeros(8), task=NUMBER).p == 0.5**8
    theirs = 0.1 * (np.arange(200) < 3).reshape(200, 1)
    p = compared(np.zeros((200, 1)), theirs, np.zeros(200), task=NUMBER).p
    assert p == pytest.approx(1 / 8, abs=0.03)
    # No random swap leads by as much, and the lead itself counts as one of 499 + 1, twice.
    p = compared(np.zeros((200, 1)), np.ones((200, 1)), np.zeros(200), task=NUMBER).p
    assert p == 1 / 1000


@given(st.sampled_from([LABELS, NUMBERS]), st.integers(2, 40), st.integers(0, 2**32))
def test_record_order_irrelevant(task, n, seed):
    """Another order of the records changes neither the p-value nor the verdict."""
    arrays = answered(n, seed)
    order = np.random.default_rng(seed + 1).permutation(n)
    one = compared(*arrays, task=task, swaps=19)
    other = compared(*(array[order] for array in arrays), task=task, swaps=19)
    assert (one.p, one.passed, one.metric) == (other.p, other.passed, other.metric)


@pytest.mark.parametrize(
    ("ours", "theirs", "options", "end"),
    [
        (391, 390, {}, ", 0.9750, by more than chance (p 0.500; at most 0.05 is asked for)"),
        (391, 390, {"confidence": None}, ""),
        (390, 370, {"margin": 0.04}, ", 0.9250 (p 0.000)"),
        (390, 370, {"margin": 0.06}, ", 0.9250, by more than the margin 0.06"),
    ],
)
def test_lead_exceeds_chance_and_margin(ours, theirs, options, end):
    comparison = compared(hits(ours), hits(theirs), **options)
    assert comparison.passed == ("by more than" not in end)
    assert comparison.words.endswith(end)


@pytest.mark.parametrize(("ours", "theirs"), [(1, 1), (1, math.nan), (math.nan, 1)])
def test_equal_or_nan_never_wins(ours, theirs):
    pair = (np.full((40, 1), value) for value in (ours, theirs))
    comparison = compared(*pair, np.zeros(40), task=NUMBER, confidence=None)
    assert not comparison.passed and comparison.p == 1.0


def scores(draw, n, positive, shared):
    """Returns scores of two models on different scales, and labels with this positive share."""
    labels = (np.arange(n) < n * positive).astype(int)
    hard = labels + shared * draw.normal(size=n)
    odds = (np.exp((hard + draw.normal(size=n)) * scale) for scale in (1, 9))
    return *(np.stack([-each, each], axis=1).clip(1e-9) for each in odds), labels


def numbers(draw, n, freedom, shared):
    """Returns two models with errors of Student's distribution, and the labels."""
    hard, *own = (draw.standard_t(freedom, size=(n, 1)) for _ in range(3))
    return *(shared * hard + each for each in own), np.zeros(n)


@pytest.mark.parametrize(
    ("trials", "swaps"), [(100, 39), pytest.param(1500, 99, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("n", [50, 500, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("models", "shape", "shared", "task"),
    [
        pytest.param(
            scores, 0.3, 1.0, TWO, marks=pytest.mark.cluster
        ),  # AUC takes a quarter of a minute.
        pytest.param(scores, 0.05, 0.0, TWO, marks=pytest.mark.cluster),
        (numbers, 30, 3.0, NUMBER),
        (numbers, 3, 1.0, NUMBER),
    ],
)
def test_type_one_error(models, shape, shared, task, n, trials, swaps):
    """Equally good models beat each other in one of twenty trials at most, beyond chance."""
    draw = np.random.default_rng(7)
    wins = sum(
        compared(*models(draw, n, shape, shared), task=task, swaps=swaps).passed
        for _ in range(trials)
    )
    # Three standard deviations, as one of all these cases exceeds two in a third of all seeds.
    assert wins <= 0.05 * trials + 3 * (0.05 * 0.95 * trials) ** 0.5

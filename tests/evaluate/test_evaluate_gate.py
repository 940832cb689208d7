import itertools

import numpy as np
import pytest

from common.errors import UserError
from components.evaluate.__main__ import main
from components.evaluate.comparing import gate_comparisons
from components.evaluate.eval_set import EvalSet
from components.evaluate.gate import (
    BASELINE,
    CHAMPION,
    PROMOTE,
    REGISTER,
    REJECT,
    Comparison,
    Gate,
    decide,
)
from components.evaluate.options import Options
from components.evaluate.score import Answers
from tests.root import ROOT

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
    comparisons = judge(answers, "slices: {company: {accuracy: 0.9}}\nslice_records: 20")
    right = answers.answers.argmax(axis=1) == answers.labels
    companies = answers.records.columns["company"]
    expected = {}
    for value in np.unique(companies):
        chosen = companies == value
        count, share = chosen.sum(), right[chosen].mean()
        words = f"accuracy of company {value.decode()} ({count} records)"
        if count < 20:
            words += " is not judged: it takes 20"
        else:
            words += f" {share:.4f} {'reaches' if share >= 0.9 else 'misses'} the threshold 0.9000"
        expected[words] = bool(count < 20 or share >= 0.9)
    assert {comparison.words: comparison.passed for comparison in comparisons} == expected
    assert False in expected.values() and any("not judged" in words for words in expected)


def test_undefined_metric_not_judged(answers):
    comparisons = judge(answers, "thresholds: {auc: 0.6, loss: 0.1}\nslices: {label: {auc: 0.9}}")
    assert [comparison.metric for comparison in comparisons if not comparison.passed] == ["loss"]
    assert comparisons[-1].words.endswith("is not judged: they do not define it")


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("thresholds: {acc: 0.9}", r"unknown metric of a threshold 'acc'; did you mean 'auc'\?"),
        ("slices: {compani: {auc: 1}}", r"'compani'; did you mean 'company'\?"),
    ],
)
def test_unknown_metric_or_column_refused(answers, gate, message):
    with pytest.raises(UserError, match=message):
        judge(answers, gate)


@pytest.mark.parametrize(
    ("content", "message"),
    {
        b"treshold: {}": "unknown key 'treshold'; did you mean 'thresholds'?",
        b"thresholds: 0.9": "thresholds: 0.9 should be a valid dictionary",
        b"thresholds: {auc: .nan}": "thresholds.auc: nan should be a finite number",
        b"confidence: 95": "confidence: 95 should be less than 1",
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


@pytest.mark.parametrize(("worthy", "useful", "best"), itertools.product([True, False], repeat=3))
def test_verdict_follows_from_comparisons(worthy, useful, best):
    comparisons = [
        Comparison(who="threshold", passed=worthy, words="t"),
        Comparison(who=BASELINE, passed=useful, words="b"),
        Comparison(who=CHAMPION, passed=best, words="c", metric="auc"),
    ]
    decision = decide("auc", comparisons, notes=["n"])
    failed = [each.words for each in comparisons[:2] if not each.passed]
    accepted = PROMOTE if best else REGISTER
    assert decision["verdict"] == (REJECT if failed else accepted)
    assert decision["why"] == ("; ".join(failed) or "c")
    assert decision["reasons"] == ["t", "b", "c", "n"]

import itertools
import pathlib

import numpy as np
import pytest
import trips

from common.errors import UserError
from components.evaluate.__main__ import main
from components.evaluate.comparing import gate_comparisons
from components.evaluate.eval_set import EvalSet
from components.evaluate.gate import CHAMPION, PROMOTE, REGISTER, REJECT, Comparison, Gate, decide, load
from components.evaluate.options import Options
from components.evaluate.score import Answers

DEFAULT = pathlib.Path(__file__).parents[2] / "gates" / "default.yaml"


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Judges random answers to a table; returns the words of the comparisons that failed, and of the others."""
    data = trips.make(tmp_path_factory.mktemp("trips"))
    labels = (there := EvalSet.load(str(data), "test")).columns["label"]
    chance = np.random.default_rng(0).random(len(labels)) * 0.5 + labels * 0.3
    answers = np.stack([1 - chance, chance], axis=1)
    answered = Answers(records=there, answers=answers, labels=labels, positions=np.arange(len(labels)))

    def judge(asked: str) -> tuple[list[str], list[str]]:
        found = [*gate_comparisons(Gate.of(asked), answered, answered.measure())]
        return [c.words for c in found if not c.passed], [c.words for c in found if c.passed]

    judge.columns = there.columns
    judge.right = (chance > 0.5) == (labels == 1)
    return judge


def test_default_file_equals_defaults():
    content = DEFAULT.read_text()
    assert Gate.of(content) == Gate.of("") == Gate() == Options(model_dir="m", data_dir="d", output="o").limits
    assert all(f"{key}:" in content for key in Gate.model_fields)


def test_slices_are_judged_by_own_records(judged):
    failed, passed = judged("slices: {company: {accuracy: 0.9}}\nslice_records: 20")
    expected = {True: set(), False: set()}
    for value in np.unique(judged.columns["company"]):
        at = judged.columns["company"] == value
        of, share = f"accuracy of company {value.decode()} ({at.sum()} records)", judged.right[at].mean()
        told = f"{share:.4f} {'reaches' if share >= 0.9 else 'misses'} the threshold 0.9000"
        few = at.sum() < 20
        expected[bool(few or share >= 0.9)].add(f"{of} is not judged: it takes 20" if few else f"{of} {told}")
    assert {True: {*passed}, False: {*failed}} == expected and failed and any("not judged" in each for each in passed)


def test_undefined_metric_not_judged(judged):
    failed, passed = judged("thresholds: {auc: 0.6, loss: 0.1}\nslices: {label: {auc: 0.9}}")
    assert [words.split()[0] for words in failed] == ["loss"]
    assert "auc of label " in passed[1] and passed[1].endswith("is not judged: they do not define it")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("thresholds: {acc: 0.9}", "unknown metric of a threshold 'acc'; did you mean 'auc'? (known: accuracy, "),
        ("slices: {compani: {auc: 1}}", "'compani'; did you mean 'company'? (known: "),
        ("slices: {area: {auc: 1}}", "slices.area: 12 different values; at most 9 can be judged"),
    ],
)
def test_unknown_metric_or_column_refused(judged, monkeypatch, asked, told):
    monkeypatch.setattr("components.evaluate.comparing._MOST_VALUES", 9)
    with pytest.raises(UserError) as error:
        judged(asked)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("treshold: {}", "unknown key 'treshold'; did you mean 'thresholds'?"),
        ("thresholds: 0.9", "thresholds: 0.9 should be a valid dictionary"),
        ("thresholds: {auc: .nan}", "thresholds.auc: nan should be a finite number"),
        ("confidence: 95", "confidence: 95 should be less than 1"),
        ("margin: -1", "margin: -1 should be greater than or equal to 0"),
        ("- margin", "top level: ['margin'] should be a valid dictionary"),
        ("thresholds: {auc: true}", "thresholds.auc: True should be a valid number"),
        ("slices: {label: {accuracy: 97}}", "a threshold of accuracy: 97 is not from 0 to 1"),
        (b"\xff", "gate.yaml: "),
    ],
)
def test_wrong_gate_file_is_one_line(tmp_path, refused, content, told):
    path = tmp_path / "gate.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    line = refused(main, "--model-dir", "m", "--data-dir", "d", "--output", "o", "--gate", path)
    assert line.startswith(f"error: --gate {path}: ") and told in line
    with pytest.raises(UserError, match=r"nowhere\.yaml: cannot be read"):
        load(str(tmp_path / "nowhere.yaml"))


def test_flags_override_gate_file(tmp_path):
    path = tmp_path / "gate.yaml"
    path.write_text("thresholds: {auc: 0.5, accuracy: 0.6}\nconfidence: none\nmargin: 0.01")
    places = {"model_dir": "m", "data_dir": "d", "output": "o"}
    options = Options(**places, gate=str(path), min_auc=0.7, threshold="loss=2")
    path.unlink()
    handed = Options.parse(options.as_flags(but=places), "step", **places)
    assert handed == options
    assert handed.limits == Gate(thresholds={"auc": 0.7, "accuracy": 0.6, "loss": 2.0}, confidence=None, margin=0.01)


@pytest.mark.parametrize("passed", itertools.product([True, False], repeat=3))
def test_verdict_follows_from_comparisons(passed):
    worthy, useful, best = passed
    threshold = Comparison(who="threshold", passed=worthy, words="t")
    baseline = Comparison(who="baseline", passed=useful, words="b")
    champion = Comparison(who=CHAMPION, passed=best, words="c", metric="auc", candidate=0.9, other=0.8)
    decision = decide("auc", [threshold, baseline, champion], notes=["n"])
    assert decision["verdict"] == ((PROMOTE if best else REGISTER) if worthy and useful else REJECT)
    failed = [name for name, held in (("t", worthy), ("b", useful)) if not held]
    assert decision["why"] == ("; ".join(failed) or "c")
    alone = decide("auc", [threshold, baseline, Comparison(who=CHAMPION, passed=True, words="c")])
    assert alone["why"] == ("; ".join(failed) or "b; c")  # there is no champion whose figures say it
    assert decision["reasons"] == ["t", "b", "c", "n"] and decision["metric"] == "auc"
    assert [Comparison(**each) for each in decision["comparisons"]] == [threshold, baseline, champion]

"""What a gate file asks for, and whether a model is up to it."""

import pathlib

import numpy as np
import pytest
import trips

from common.errors import UserError
from components.evaluate.__main__ import main
from components.evaluate.demands import demands
from components.evaluate.eval_set import EvalSet
from components.evaluate.gate_file import Gate, text
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
        found = [*demands(Gate.of(asked), answered, answered.measure())]
        return [c.words for c in found if not c.passed], [c.words for c in found if c.passed]

    judge.columns = there.columns
    judge.right = (chance > 0.5) == (labels == 1)
    return judge


def test_the_default_file_is_what_is_asked_without_one_and_says_every_key():
    content = DEFAULT.read_text()
    assert Gate.of(content) == Gate.of("") == Gate() == Options(model_dir="m", data_dir="d", output="o").asked
    assert all(f"{key}:" in content for key in Gate.__dataclass_fields__)


def test_each_value_of_a_column_is_judged_by_its_own_records(judged):
    failed, passed = judged("slices: {company: {accuracy: 0.9}}\nslice_records: 20")
    expected = {True: set(), False: set()}
    for value in np.unique(judged.columns["company"]):
        at = judged.columns["company"] == value
        of, share = f"accuracy of company {value.decode()} ({at.sum()} records)", judged.right[at].mean()
        told = f"{share:.4f} {'reaches' if share >= 0.9 else 'misses'} the threshold 0.9000"
        few = at.sum() < 20
        expected[bool(few or share >= 0.9)].add(f"{of} is not judged: it takes 20" if few else f"{of} {told}")
    assert {True: {*passed}, False: {*failed}} == expected and failed and any("not judged" in each for each in passed)


def test_thresholds_and_what_a_part_does_not_define(judged):
    failed, passed = judged("thresholds: {auc: 0.6, loss: 0.1}\nslices: {label: {auc: 0.9}}")
    assert [words.split()[0] for words in failed] == ["loss"]
    assert "auc of label " in passed[1] and passed[1].endswith("is not judged: they do not define it")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            "thresholds: {acc: 0.9}",
            "a threshold of acc: split 'test' of dataset 'trips' gives no such metric; it has accuracy",
        ),
        ("slices: {compani: {auc: 1}}", "'compani'; did you mean 'company'? (known: "),
        ("slices: {area: {auc: 1}}", "slices.area: 12 different values; 9 can be looked at one by one"),
    ],
)
def test_what_the_dataset_cannot_give_is_refused(judged, monkeypatch, asked, told):
    monkeypatch.setattr("components.evaluate.demands._MOST_VALUES", 9)
    with pytest.raises(UserError) as error:
        judged(asked)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("treshold: {}", "unknown key 'treshold'; did you mean 'thresholds'?"),
        ("thresholds: 0.9", "thresholds: 0.9 is no mapping; write 'key: value'"),
        ("thresholds: {auc: .nan}", "thresholds.auc: 'nan' is not a number"),
        ("confidence: 95", "confidence: '95' is not a number from 0.5 to less than 1, such as 0.95, or none"),
        ("margin: -1", "margin: '-1' is not a number of at least 0"),
        ("- margin", "top level: ['margin'] is no mapping"),
        (b"\xff", "gate.yaml: "),
    ],
)
def test_a_file_that_says_what_cannot_be_is_one_line(tmp_path, refused, content, told):
    path = tmp_path / "gate.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    line = refused(main, "--model-dir", "m", "--data-dir", "d", "--output", "o", "--gate", path)
    assert line.startswith(f"error: --gate {path}: ") and told in line
    with pytest.raises(UserError, match=r"nowhere\.yaml: cannot be read"):
        text(str(tmp_path / "nowhere.yaml"))


def test_flags_go_before_the_file_and_the_step_gets_its_content(tmp_path):
    path = tmp_path / "gate.yaml"
    path.write_text("thresholds: {auc: 0.5, accuracy: 0.6}\nconfidence: none\nmargin: 0.01")
    places = {"model_dir": "m", "data_dir": "d", "output": "o"}
    options = Options(**places, gate=str(path), min_auc=0.7, threshold="loss=2")
    path.unlink()
    handed = Options.parse(options.as_flags(but=places), "step", **places)
    assert handed == options
    assert handed.asked == Gate(thresholds={"auc": 0.7, "accuracy": 0.6, "loss": 2.0}, confidence=None, margin=0.01)

"""How much an example counts: what is refused, and that it reaches every step of every kind of job."""

import copy
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import trips

from trainer import options
from trainer.base.errors import UserError
from trainer.base.manifest import Manifest
from trainer.data import records, weighing
from trainer.data.column_encodings import prepare
from trainer.data.reader.modes import choose
from trainer.replicas.member import Member

COLUMNS = {"importance": "float", "negative": "float", "zero": "int", "name": "string", "usual": "float"}
NO, YES = 3.0, 0.5


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    """Trips with columns that no model takes; what is missing of one stands for a negative number."""
    schema = copy.deepcopy(trips.SCHEMA)
    schema["columns"] |= {name: {"type": kind} for name, kind in COLUMNS.items()}
    schema["columns"]["usual"]["default"] = -1
    rows = [
        {**row, "importance": i % 4 / 2, "negative": 1 - i % 3, "zero": 0, "name": "x", "usual": i if i % 9 else ""}
        for i, row in enumerate(trips.rows(400))
    ]
    table = [{name: row[name] for name in schema["columns"]} for row in rows]
    return trips.make(tmp_path_factory.mktemp("trips"), table, schema)


def asked(data: pathlib.Path, *flags: str) -> options.Options:
    return options.parse(["--data-dir", str(data), "--job-dir", "j", "--train-steps", "1", *flags], {}).on(
        Manifest.load(data)
    )


WRONG = {
    "wait": "has no such column of numbers beside the label (it has area, importance, miles, negative",
    "label": "has no such column of numbers beside the label",
    "name": "has no such column of numbers beside the label",
    "company": "has no such column of numbers beside the label",
    "miles": "the model takes it, so clients would have to send it; leave it out of deep and wide",
    "negative": "a training example weighs -1; weights are at least 0",
    "usual": "a training example weighs -1; weights are at least 0",
    "zero": "no training example weighs more than 0",
}


@pytest.mark.parametrize("column", WRONG)
def test_a_column_that_cannot_weigh_is_refused(data, column):
    with pytest.raises(UserError) as refused:
        asked(data, "--weight-column", column)
    assert str(refused.value).startswith(f"--weight-column {column}: ") and WRONG[column] in str(refused.value)


def test_what_cannot_be_a_class_or_its_weight_is_refused(data, digits):
    for text in ("no=-1", "no=nan", "no=inf", "no", "balanced,1"):
        with pytest.raises(UserError, match="is not 'balanced' or CLASS=WEIGHT with a number of at least 0"):
            asked(data, f"--class-weights={text}")
    with pytest.raises(UserError, match="unknown --class-weights 'yess'; did you mean 'yes'"):
        asked(data, "--class-weights=yess=2")
    with pytest.raises(UserError, match="no training example has a class that weighs more than 0"):
        asked(data, "--class-weights=no=0,yes=0")
    with pytest.raises(UserError, match=r"beside the label \(it has none\)"):
        asked(digits, "--weight-column=label")


def test_balanced_classes_weigh_the_same_together_and_what_is_not_named_weighs_one(data, digits):
    manifest = Manifest.load(digits)
    weights = np.array(weighing.class_weights(["balanced"], manifest))
    counts = np.array(manifest.splits["train"].class_histogram)
    np.testing.assert_allclose(weights * counts, counts.sum() / 10)
    assert weighing.class_weights(["yes=2.5"], Manifest.load(data)) == (1.0, 2.5)


@pytest.mark.parametrize(("mode", "asynchronous"), [("resident", False), ("mapped", False), ("resident", True)])
def test_each_example_of_a_batch_has_its_own_weight_and_the_model_does_not_see_it(data, mode, asynchronous):
    manifest, flags = Manifest.load(data), [f"no={NO}", f"yes={YES}"]
    choice = choose(manifest, data_dir=str(data), budget_bytes=1e9, wish=mode, asynchronous=asynchronous)
    place = records.locate(choice, manifest, Member(role="chief", index=0, addresses={}), lambda: None)

    def batch(given) -> dict[str, np.ndarray]:
        reader = records.open_reader(place, manifest, global_batch=64, seed=0, prepare=given)
        columns = reader.batch(reader.load(), tf.constant(3, tf.int64), 0, 64)
        return {name: column.numpy() for name, column in columns.items()}

    model_takes = {*prepare(manifest, records.resident(manifest, str(data), "train")), weighing.WEIGHT}
    whole = batch(dict)
    weighed = batch(
        weighing.weighed(lambda columns: prepare(manifest, columns), manifest, classes=flags, column="importance")
    )
    assert weighed.keys() == model_takes
    expected = whole["importance"] * np.where(whole["label"] == 1, YES, NO)
    np.testing.assert_array_equal(weighed[weighing.WEIGHT], expected.astype(np.float32))
    assert len(set(expected)) > 4


@pytest.mark.cluster
def test_replicas_learn_what_one_does_of_weighed_examples_and_others_than_without_weights(make, data):
    flags = ["--deterministic", "--batch-size", 65, "--train-steps", 30, "--label-smoothing", 0.1]
    weighed = [*flags, "--weight-column", "importance", "--class-weights", f"no={NO},yes={YES}"]
    clusters = {
        "one": (["chief"], weighed),
        "mirrored": (["chief"], [*weighed, "--strategy", "mirrored", "--logical-cpus", 2]),
        "workers": (["chief", "worker"], weighed),
        "servers": (["chief", "worker", "ps"], weighed[1:]),
        "without": (["chief"], flags),
    }
    learnt = {}
    for name, (roles, given) in clusters.items():
        job = make(name, data)
        job.start(*roles, flags=given)
        assert job.wait_for("chief-0") == {"chief-0": 0}, job.output()
        job.close()
        learnt[name] = next(e["loss"] for e in job.events() if e["event"] == "step"), job.variables(30)
    loss, variables = learnt["one"]  # the loss of the first step, that of the initial weights
    for name in ("mirrored", "workers", "servers"):
        assert learnt[name][0] == pytest.approx(loss, rel=1e-5)
        for key, value in variables.items() if name != "servers" else ():
            np.testing.assert_allclose(learnt[name][1][key], value, atol=2e-4, err_msg=f"{name} {key}")
    assert learnt["without"][0] != pytest.approx(loss, rel=1e-2)
    assert any(np.abs(learnt["without"][1][key] - value).max() > 1e-2 for key, value in variables.items())
    served = tf.saved_model.load(str(job.directory.parent / "one" / "model")).signatures["serving_default"]
    assert "importance" not in served.structured_input_signature[1]
    changed = make("one", data)
    changed.start("chief", flags=[*flags, "--weight-column", "importance"])
    assert changed.wait() == {"chief-0": 2} and "class_weights: " in changed.output()

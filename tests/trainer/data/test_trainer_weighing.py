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
from trainer.data.reader.modes import choose
from trainer.replicas.member import Member

WEIGHTS = ("no=3", "yes=0.5")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    """Trips with columns that no model takes; what is missing of one stands for a negative number."""
    schema = copy.deepcopy(trips.SCHEMA)
    kinds = {"importance": "float", "negative": "float", "zero": "int", "name": "string", "usual": "float"}
    schema["columns"] |= {name: {"type": kind} for name, kind in kinds.items()}
    schema["columns"]["usual"]["default"] = -1
    rows = [
        {**row, "importance": i % 4 / 2, "negative": 1 - i % 3, "zero": 0, "name": "x", "usual": i if i % 9 else ""}
        for i, row in enumerate(trips.rows(400))
    ]
    table = [{name: row[name] for name in schema["columns"]} for row in rows]
    return trips.make(tmp_path_factory.mktemp("trips"), table, schema)


NONE = "has no such column of numbers beside the label (it has "
REFUSED = {
    **{
        f"--weight-column={name}": f"{name}: dataset 'trips' {NONE}area, importance"
        for name in ("wait", "label", "name")
    },
    "--weight-column=miles": "the model takes it, so clients would have to send it; leave it out of deep and wide",
    "--weight-column=negative": "a training example weighs -1; weights are at least 0",
    "--weight-column=usual": "a training example weighs -1; weights are at least 0",
    "--weight-column=zero": "no training example weighs more than 0",
    **{
        f"--class-weights={text}": "is not 'balanced' or CLASS=WEIGHT"
        for text in ("no=-1", "no=nan", "no", "balanced,1")
    },
    "--class-weights=yess=2": "unknown --class-weights 'yess'; did you mean 'yes'",
    "--class-weights=no=0,yes=0": "no training example has a class that weighs more than 0",
}


@pytest.mark.parametrize("flag", REFUSED)
def test_what_cannot_weigh_is_refused_before_anything_starts(data, digits, flag):
    given = ["--data-dir", "d", "--job-dir", "j", "--train-steps", "1"]
    with pytest.raises(UserError) as refused:
        options.parse([*given, flag], {}).on(Manifest.load(data))
    assert REFUSED[flag] in str(refused.value) and flag.split("=")[0] in str(refused.value)
    with pytest.raises(UserError, match=r"dataset 'digits' has no such column .*\(it has none\)"):
        options.parse([*given, "--weight-column=image"], {}).on(Manifest.load(digits))


@pytest.mark.parametrize(("mode", "asynchronous"), [("resident", False), ("mapped", False), ("resident", True)])
def test_each_example_of_a_batch_has_its_own_weight_and_the_model_does_not_see_it(data, mode, asynchronous):
    manifest = Manifest.load(data)
    choice = choose(manifest, data_dir=str(data), budget_bytes=1e9, wish=mode, asynchronous=asynchronous)
    place = records.locate(choice, manifest, Member(role="chief", index=0, addresses={}), lambda: None)

    def batch(given):
        reader = records.open_reader(place, manifest, global_batch=64, seed=0, prepare=given)
        return reader.batch(reader.load(), tf.constant(3, tf.int64), 0, 64)

    whole = batch(dict)
    found = batch(weighing.weighed(dict, manifest, classes=WEIGHTS, column="importance"))
    assert whole.keys() - found.keys() == {"importance"} and found.keys() - whole.keys() == {weighing.WEIGHT}
    expected = whole["importance"].numpy() * np.where(whole["label"] == 1, 0.5, 3)
    np.testing.assert_array_equal(found[weighing.WEIGHT], expected.astype(np.float32))
    assert len(set(expected)) > 4


@pytest.mark.cluster
def test_replicas_learn_what_one_does_of_weighed_examples_and_others_than_without_weights(make, data):
    flags = ["--deterministic", "--batch-size", 65, "--train-steps", 30, "--label-smoothing", 0.1]
    weighed = [*flags, "--weight-column", "importance", "--class-weights", ",".join(WEIGHTS)]
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
    assert [learnt[name][0] for name in ("mirrored", "workers", "servers")] == pytest.approx([loss] * 3, rel=1e-5)
    assert learnt["without"][0] != pytest.approx(loss, rel=1e-2)
    for key, value in variables.items():
        for name in ("mirrored", "workers"):
            np.testing.assert_allclose(learnt[name][1][key], value, atol=2e-4, err_msg=f"{name} {key}")
    served = tf.saved_model.load(str(job.directory.parent / "one" / "model")).signatures["serving_default"]
    assert "importance" not in served.structured_input_signature[1]

"""How much an example counts: what is refused, and that it reaches every step of every kind of job."""

import numpy as np
import pytest
import tensorflow as tf

from trainer import options
from trainer.base.errors import UserError
from trainer.base.manifest import Manifest
from trainer.data import records, weighing
from trainer.data.reader.modes import choose
from trainer.replicas.member import Member

WEIGHTS = ("no=3", "yes=0.5")


NONE = "has no such column of numbers beside the label (it has "
REFUSED = {
    **{f"--weight-column={n}": f"{n}: dataset 'trips' {NONE}area, importance" for n in ("wait", "label", "name")},
    "--weight-column=miles": "the model takes it, so clients would have to send it; leave it out of deep and wide",
    "--weight-column=negative": "a training example weighs -1; weights are at least 0",
    "--weight-column=usual": "a training example weighs -1; weights are at least 0",
    "--weight-column=zero": "no training example weighs more than 0",
    **{f"--class-weights={w}": "is not 'balanced' or CLASS=WEIGHT" for w in ("no=-1", "no=nan", "no", "balanced,1")},
    "--class-weights=yess=2": "unknown --class-weights 'yess'; did you mean 'yes'",
    "--class-weights=no=0,yes=0": "no training example has a class that weighs more than 0",
}


@pytest.mark.parametrize("flag", REFUSED)
def test_what_cannot_weigh_is_refused_before_anything_starts(weighed, digits, flag):
    given = ["--data-dir", "d", "--job-dir", "j", "--train-steps", "1"]
    with pytest.raises(UserError) as refused:
        options.parse([*given, flag], {}).on(Manifest.load(weighed))
    assert REFUSED[flag] in str(refused.value) and flag.split("=")[0] in str(refused.value)
    with pytest.raises(UserError, match=r"dataset 'digits' has no such column .*\(it has none\)"):
        options.parse([*given, "--weight-column=image"], {}).on(Manifest.load(digits))


@pytest.mark.parametrize(("mode", "asynchronous"), [("resident", False), ("mapped", False), ("resident", True)])
def test_each_example_of_a_batch_has_its_own_weight_and_the_model_does_not_see_it(weighed, mode, asynchronous):
    manifest = Manifest.load(weighed)
    choice = choose(manifest, data_dir=str(weighed), budget_bytes=1e9, wish=mode, asynchronous=asynchronous)
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

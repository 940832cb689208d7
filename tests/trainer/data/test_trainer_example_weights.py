"""Weights of examples that are refused."""

import pytest

from common.errors import UserError
from common.manifest import Manifest
from trainer import options

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

"""Weights of examples that are refused."""

import pytest

from common.errors import UserError
from common.manifest import Manifest
from trainer import options

REFUSED = {
    **{f"--class-weights={w}": "is not CLASS=WEIGHT with" for w in ("no=-1", "no=nan", "no", "no=0", "yes=1,1")},
    "--class-weights=yess=2": "unknown --class-weights 'yess'; did you mean 'yes'",
}


@pytest.mark.parametrize("flag", REFUSED)
def test_wrong_class_weight_is_refused(trips_data, flag):
    flags = ["--data-dir", "d", "--job-dir", "j", "--train-steps", "1", flag]
    with pytest.raises(UserError) as refused:
        options.parse(flags, {}).on(Manifest.load(trips_data))
    assert REFUSED[flag] in str(refused.value) and "--class-weights" in str(refused.value)

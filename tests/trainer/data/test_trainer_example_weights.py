import pytest

from common.errors import UserError
from common.manifest import Manifest
from trainer import options


@pytest.mark.parametrize("weight", ["no=-1", "no=nan", "no", "no=0", "yes=1,1", "yess=2"])
def test_wrong_class_weight_is_error(trips_data, weight):
    flags = ["--data-dir", "d", "--job-dir", "j", "--train-steps", "1", "--class-weights", weight]
    expected = "--class-weights.*" + (
        "'yess'; did you mean 'yes'" if "yess" in weight else "is not CLASS=WEIGHT with"
    )
    with pytest.raises(UserError, match=expected):
        options.parse(flags, {}).on(Manifest.load(trips_data))

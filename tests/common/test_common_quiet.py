"""TensorFlow imported with less."""

import pytest

from tests.programs import run_python

pytestmark = pytest.mark.long
PROGRAM = """
import gc, sys
from common import quiet
quiet.import_keras()
assert gc.isenabled() and gc.get_freeze_count() > 100_000
quiet.import_arrow()
import pyarrow
pyarrow.array(["x"])
assert not {"matplotlib", "pandas", "sklearn"} & sys.modules.keys()
import keras
import matplotlib.pyplot, pandas, sklearn.metrics
keras.layers.Dense(1)(keras.Input([2]))
"""


def test_imports_skip_extras_and_garbage():
    run_python("-c", PROGRAM)

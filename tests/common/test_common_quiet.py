"""TensorFlow imported with less."""

import subprocess
import sys

import pytest

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
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""TensorFlow imported with less."""

import subprocess
import sys

PROGRAM = """
import sys
from common import quiet
with quiet.without_extras():
    import keras
assert not {"matplotlib", "sklearn"} & sys.modules.keys()
import matplotlib.pyplot, sklearn.metrics
keras.layers.Dense(1)(keras.Input([2]))
"""


def test_keras_imports_neither_plots_nor_scikit_learn():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

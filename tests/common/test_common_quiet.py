"""TensorFlow imported with less."""

import subprocess
import sys

PROGRAM = """
import sys
from common import quiet
quiet.import_keras()
assert not {"matplotlib", "sklearn"} & sys.modules.keys()
import keras
import matplotlib.pyplot, sklearn.metrics
keras.layers.Dense(1)(keras.Input([2]))
"""


def test_import_keras_hides_extras():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

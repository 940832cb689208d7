"""Whether a registered version answers as the evaluation has it, in a process that has TensorFlow and nothing of ours.

check("registry/mnist/3", evaluation["answered"])

What serves the model has neither our code nor Keras. A model that needs them, or whose files are not those that were
judged, shows it here, before the alias moves.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from common.errors import UserError

# Of the largest answer; another machine, precision or number of threads moves answers by less.
_TOLERANCE = 0.01
_TIMEOUT_S = 600.0
_PROGRAM = """
import base64, gc, json, sys
gc.disable()  # for this short life: importing TensorFlow takes a sixth less
sys.modules.update(dict.fromkeys(["keras", "tf_keras", "trainer", "components", "common"]))  # now none of them can be imported
import numpy as np, tensorflow as tf
request = json.load(sys.stdin)
inputs = {}
for name, column in request["inputs"].items():
    if "base64" in column:
        values = np.frombuffer(base64.b64decode(column["base64"]), column["dtype"]).reshape(column["shape"])
    else:
        values = [float("nan") if value is None else value for value in column["values"]]
    inputs[name] = tf.constant(values, column["dtype"])
try:
    served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
    print(json.dumps(served(**inputs)[request["output"]].numpy().tolist()))
except Exception as error:
    sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())[:500]}")
"""


def check(model_dir: str, answered: Mapping[str, Any]) -> None:
    """Asks the SavedModel, local or `gs://`, for what `answered` of its evaluation.json has, in a process of its own.

    A UserError if it cannot be loaded or called there, or answers otherwise than it did when it was judged.
    """
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-I", "-c", _PROGRAM, model_dir]
    options = {"env": environment, "capture_output": True, "text": True, "errors": "replace", "timeout": _TIMEOUT_S}
    place = f"{model_dir}: in a process that has TensorFlow alone, this model"
    ended = subprocess.run(command, input=json.dumps(answered), **options)
    *_, last = ("no word", *(ended.stderr if ended.returncode else ended.stdout).strip().splitlines())
    if ended.returncode:
        raise UserError(f"{place} does not work (exit code {ended.returncode}: {last})")
    answers, judged = np.array(json.loads(last), np.float64), np.array(answered["answers"], np.float64)
    most = _TOLERANCE * np.abs(judged).max()
    if answers.shape != judged.shape or not (np.abs(answers - judged) <= most).all():  # NaN is not
        raise UserError(
            f"{place} does not answer as when it was judged: it gives {answered['output']} {answers[:2].tolist()} and gave "
            f"{judged[:2].tolist()}; at most {most:.3g} may they differ"
        )

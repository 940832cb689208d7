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
import base64, json, sys
sys.modules.update(dict.fromkeys(["keras", "tf_keras", "trainer", "components", "common"]))  # now none of them can be imported
import numpy as np, tensorflow as tf
asked, found = json.load(sys.stdin), {}
try:
    inputs = {}
    for name, given in asked["inputs"].items():
        if "base64" in given:
            values = np.frombuffer(base64.b64decode(given["base64"]), given["dtype"]).reshape(given["shape"])
        else:
            values = [float("nan") if value is None else value for value in given["values"]]
        inputs[name] = tf.constant(values, given["dtype"])
    served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
    found["answers"] = served(**inputs)[asked["output"]].numpy().tolist()
except Exception as error:
    found["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
print(json.dumps(found))
"""


def check(model_dir: str, answered: Mapping[str, Any]) -> None:
    """Asks the SavedModel, local or `gs://`, for what `answered` of its evaluation.json has, in a process of its own.

    A UserError if it cannot be loaded or called there, or answers otherwise than it did when it was judged.
    """
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-I", "-c", _PROGRAM, model_dir]
    text, where = json.dumps(answered), f"{model_dir}: in a process that has TensorFlow alone, this model"
    try:
        ended = subprocess.run(
            command, input=text, env=environment, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
        )
        found = json.loads(ended.stdout.splitlines()[-1]) if ended.stdout else {}
    except subprocess.TimeoutExpired:
        raise UserError(f"{where} has not answered in {_TIMEOUT_S:.0f} s") from None
    if "answers" not in found:
        last = (ended.stderr.strip().splitlines() or ["no word"])[-1]
        raise UserError(f"{where} does not work ({found.get('error') or f'exit code {ended.returncode}: {last}'})")
    given, judged = np.array(found["answers"], np.float64), np.array(answered["answers"], np.float64)
    if given.shape != judged.shape:
        raise UserError(
            f"{where} gives {answered['output']} {list(given.shape)}, where {list(judged.shape)} were judged"
        )
    differences = np.abs(given - judged).reshape(len(judged), -1).max(axis=1)
    if not (differences <= (most := _TOLERANCE * np.abs(judged).max())).all():
        worst = int(np.argmax(np.nan_to_num(differences, nan=np.inf)))
        raise UserError(
            f"{where} does not answer as when it was judged: {int((~(differences <= most)).sum())} of {len(judged)} records "
            f"differ by more than {most:.3g}; of record {worst} it gives {answered['output']} {given[worst].tolist()}, and "
            f"gave {judged[worst].tolist()}"
        )

"""Trains on two logical CPUs from a resident split; `test_trainer_steps` starts it and looks at the graphs that ran.

    python mirrored_program.py   # prints JSON: by way of holding the split, columns sent in every step

Logical devices must be there before TensorFlow starts, so it is a process of its own.
"""

import json
from collections.abc import Mapping
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from common.manifest import Manifest, Split
from trainer.data.features import Columns
from trainer.data.reader import ResidentReader
from trainer.nn.layers import Embedding
from trainer.nn.optimizers import Adam
from trainer.sync_steps import SyncSteps
from trainer.tasks.of_dataset import Classification
from trainer.train_step import TrainStep

EXAMPLES, BATCH, STEPS = 500, 16, 6
SPLITS = {"train": Split(examples=EXAMPLES, class_histogram=(), shards=())}
MANIFEST = Manifest(
    name="made", origin="", label="label", features=(), class_names=(), splits=SPLITS, record_bytes=None, arguments={}
)
_PASSED_ON = ("Identity", "Switch", "Merge", "Enter")


def columns() -> Columns:
    """A column of every type that a model takes."""
    draw = np.random.default_rng(0)
    return {
        "pixels": tf.constant(draw.integers(0, 256, (EXAMPLES, 4)), tf.uint8),
        "numbers": tf.constant(draw.normal(size=(EXAMPLES, 3)), tf.float32),
        "rows": tf.constant(draw.integers(0, 20, (EXAMPLES, 2)), tf.int32),
        "label": tf.constant(draw.integers(0, 3, EXAMPLES), tf.int64),
    }


class _Columns(ResidentReader):
    """Reads these columns instead of a file's."""

    def parsed(self) -> Columns:
        """Returns them."""
        return columns()


def network() -> keras.Model:
    """Takes them all."""
    inputs = {name: keras.Input(c.shape[1:], dtype=c.dtype, name=name) for name, c in columns().items()}
    inputs.pop("label")
    table = Embedding(20, 3, initializer=keras.initializers.RandomNormal())
    parts = [keras.layers.Rescaling(1 / 255)(inputs["pixels"]), inputs["numbers"]]
    x = keras.layers.Concatenate()([*parts, keras.layers.Flatten()(table(inputs["rows"]))])
    return keras.Model(inputs, keras.layers.Dense(3)(x))


def train(strategy: tf.distribute.Strategy) -> list[str]:
    """Columns that a device sends to another within the loop over steps."""
    with strategy.scope():
        model, optimizer = network(), Adam(0.01)
        optimizer.build(model.trainable_variables)
    reader = _Columns(manifest=MANIFEST, data_dir="", global_batch=BATCH, seed=0, prepare=dict)
    task = Classification(("a", "b", "c"))
    step = TrainStep(model=model, optimizer=optimizer, task=task, label="label", global_batch=BATCH, seed=0)
    context.context().enable_run_metadata()
    done, steps = 0, SyncSteps(strategy, step, reader, chief=True)
    while done < STEPS:
        done += steps.run(done, STEPS, stop=False).steps
    ran = context.context().export_run_metadata()
    context.context().disable_run_metadata()
    sent = [name for graph in ran.partition_graphs for name in _sent({node.name: node for node in graph.node})]
    return sorted(set(sent))


def _sent(nodes: Mapping[str, tf.compat.v1.NodeDef]) -> list[str]:
    """Arguments of the function that hold the split, and go through its loop to another device."""
    found = []
    for node in [n for n in nodes.values() if n.op == "_Send"]:
        while node and node.op in ("_Send", *_PASSED_ON):
            node = nodes.get(node.input[0].split(":")[0].lstrip("^"))
        if node and node.op == "_Arg" and node.name.startswith("source"):
            found.append(node.name)
    return found


def main() -> None:
    """A copy on each device, and one for all, which shows that such sending would be seen."""
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = {"copies": train(mirrored)}
    with mock.patch.object(SyncSteps, "_copies", lambda self: self._reader.load()):
        found["shared"] = train(mirrored)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

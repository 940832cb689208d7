"""Graphs of a step on two logical CPUs."""

import keras
import numbered
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from trainer_jobs import in_new_process

from common.manifest import Manifest
from trainer.data.placement import Choice
from trainer.data.reader import open_reader
from trainer.sync_steps import SyncSteps
from trainer.tasks.of_dataset import task_of
from trainer.train_step import TrainStep


def prepare(columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Adds a column of int32, which TensorFlow would keep in the memory of the host."""
    return {**columns, "rows": tf.cast(columns["label"], tf.int32)}


def trained_graphs(manifest: Manifest, data_dir: str) -> list[tf.compat.v1.GraphDef]:
    """Returns the graphs of each device after some steps on a split in memory."""
    (device,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        network = numbered.network(manifest)
        inputs = {**network.input, "rows": keras.Input((), dtype="int32", name="rows")}
        rows = keras.layers.Embedding(3, 3)(inputs["rows"])
        model = keras.Model(inputs, network(network.input) + rows)
        optimizer = keras.optimizers.SGD()
        optimizer.build(model.trainable_variables)
    place = Choice(data_dir, "resident", "", None)
    reader = open_reader(place, manifest, global_batch=16, seed=0, prepare=prepare)
    step = TrainStep(
        model=model,
        optimizer=optimizer,
        task=task_of(manifest),
        label="label",
        global_batch=16,
        seed=0,
    )
    context.context().enable_run_metadata()
    SyncSteps(strategy, step, reader, chief=True).run(0, 1, stop=False)
    return [*context.context().export_run_metadata().partition_graphs]


@pytest.mark.cluster
def test_split_is_not_sent_between_replicas(tmp_path):
    """No argument that holds a column of the split goes to another device within the loop over steps."""
    manifest, columns, sent = numbered.dataset(tmp_path / "data", 500, classes=3), set(), set()
    for graph in in_new_process(trained_graphs, manifest, str(tmp_path / "data")):
        nodes = {node.name: node for node in graph.node}
        for node in graph.node:
            if node.op == "_Arg" and node.name.startswith("source"):
                columns.add(node.name)
            origin = node
            while origin and origin.op in ("_Send", "Identity", "Switch", "Merge", "Enter"):
                origin = nodes.get(origin.input[0].split(":")[0].lstrip("^"))
            if node.op == "_Send" and origin:
                sent.add(origin.name)
    assert len(columns) == 6  # three columns of each replica
    assert not columns & sent

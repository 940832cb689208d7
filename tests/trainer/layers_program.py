"""Calls the layers on every replica of several strategies and saves what each saw; `test_trainer_layers` starts it.

    python layers_program.py DIRECTORY  # writes mirrored.npz, worker-0.npz, worker-1.npz, parameter_server.npz

Logical devices and clusters must be there before TensorFlow starts, so each strategy has its own process, forked after
the import, which is most of the work.
"""

import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from components.train.backends.process import reserved
from trainer.cluster.strategy import count_exactly
from trainer.data.order import share
from trainer.nn import layers
from trainer.nn.layers import BatchNormalization
from trainer.nn.optimizers import Adam

BATCH, STEPS, DECAY = 11, 2, 0.9  # an odd batch: the replicas' parts differ in size
LAYERS = {
    "synchronised": lambda: BatchNormalization(decay=DECAY),
    "mixed": lambda: BatchNormalization(decay=DECAY, dtype="mixed_bfloat16"),
}
Results = dict[str, np.ndarray]


def inputs(shape: tuple[int, ...]) -> np.ndarray:
    """Channels of unlike mean and deviation."""
    channel = np.arange(shape[-1])
    return (np.random.default_rng(0).normal(channel, 1 + channel / 2, shape)).astype(np.float32)


def on_replicas(
    strategy: tf.distribute.Strategy, body: Callable[[Any, Any], dict[str, Any]], steps: int = 1
) -> list[tuple[int, dict[str, np.ndarray]]]:
    """Runs `body(first, count)` some times and returns (replica, last results) of this process's replicas."""

    def replica() -> dict[str, Any]:
        context = tf.distribute.get_replica_context()
        index = tf.convert_to_tensor(context.replica_id_in_sync_group)
        first, count = share(index, replicas=context.num_replicas_in_sync, global_batch=BATCH)
        return {"index": index, **body(first, count)}

    step = tf.function(lambda: strategy.run(replica))
    for _ in range(steps):
        values = step()
    lists = {name: strategy.experimental_local_results(value) for name, value in values.items()}
    indices = lists.pop("index")
    return [(int(i), {name: parts[n].numpy() for name, parts in lists.items()}) for n, i in enumerate(indices)]


def batch_norm(
    strategy: tf.distribute.Strategy, make: Callable[[], keras.layers.Layer], shape: tuple[int, ...] = (BATCH, 4, 6, 5)
) -> list[tuple[int, dict[str, np.ndarray]]]:
    """Output, gradients and moving statistics after some steps."""
    with strategy.scope():
        layer = make()
        layer.build(shape)

    def body(first: Any, count: Any) -> dict[str, Any]:
        x = tf.constant(inputs(shape))[first : first + count]
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            # Neither linear nor even in y, or much of a wrong gradient would not show.
            loss = tf.reduce_sum(tf.sin(tf.cast(y, tf.float32)) * x**2)
        dx, dgamma, dbeta = tape.gradient(loss, [x, layer.gamma, layer.beta])
        moving = {"mean": tf.identity(layer.moving_mean.value), "variance": tf.identity(layer.moving_variance.value)}
        return {"y": tf.cast(y, tf.float32), "dx": dx, "dgamma": dgamma, "dbeta": dbeta, **moving}

    return on_replicas(strategy, body, STEPS)


def everything(strategy: tf.distribute.Strategy) -> Results:
    """All of the above, by "what/value/replica"."""
    parts = {name: batch_norm(strategy, make) for name, make in LAYERS.items()}
    return {
        f"{what}/{name}/{replica}": value
        for what, replicas in parts.items()
        for replica, values in replicas
        for name, value in values.items()
    }


def parameter_server(worker: str, *ps: str) -> Results:
    """A job of one worker and two parameter servers, all in this process: batch normalisation, and a step of a table.

    Of the table and its moments: on which server they are, and which rows the step has changed.
    """
    spec = tf.train.ClusterSpec({"worker": [worker], "ps": ps})
    places = (("worker", 0), ("ps", 0), ("ps", 1))
    servers = [tf.distribute.Server(spec, job_name=job, task_index=i, protocol="grpc") for job, i in places]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    x = inputs((BATCH, 1, 1, 5))
    with strategy.scope():
        layer = BatchNormalization(decay=DECAY)
        layer.build(x.shape)
        table, optimizer = layers.Embedding(40, 4, initializer=keras.initializers.RandomNormal()), Adam(0.1)
        table.build((None, 1))
        optimizer.build(table.trainable_variables)
    count_exactly(optimizer)

    def learn() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(table(tf.constant([[3, 11], [12, 3]])) ** 2)
        optimizer.apply(tape.gradient(loss, table.trainable_variables), table.trainable_variables)

    before = table.table.numpy()
    y = coordinator.schedule(tf.function(lambda: strategy.run(lambda: layer(tf.constant(x), training=True)))).fetch()
    coordinator.schedule(tf.function(lambda: strategy.run(learn)))
    coordinator.join()
    del servers
    groups = {"weights": [table.table], "momentums": optimizer._momentums, "velocities": optimizer._velocities}
    return {
        **{"y": y, "mean": layer.moving_mean.numpy(), "variance": layer.moving_variance.numpy()},
        **{
            "changed": np.flatnonzero((table.table.numpy() != before).any(axis=1)),
            "steps": optimizer.iterations.numpy(),
        },
        **{n: [tf.DeviceSpec.from_string(v.value.device).task for v in group] for n, group in groups.items()},
    }


def mirrored() -> Results:
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    return everything(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))


def worker(addresses: list[str], index: int) -> Results:
    task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    os.environ["TF_CONFIG"] = json.dumps(task)
    return everything(tf.distribute.MultiWorkerMirroredStrategy())


def save(file: str, function: Callable[..., Results], *arguments: Any) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    np.savez(file, **function(*arguments))
    os._exit(0)  # servers and collectives may wait for their peers at a normal exit


def main(directory: str) -> int:
    with reserved(5) as ports:
        addresses = [f"127.0.0.1:{port}" for port in ports]
    workers = addresses[:2]
    programs = {"mirrored": (mirrored,), "parameter_server": (parameter_server, *addresses[2:])}
    programs |= {f"worker-{i}": (worker, workers, i) for i in range(2)}
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=save, args=(f"{directory}/{name}", *job)) for name, job in programs.items()]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return max(abs(process.exitcode) for process in processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

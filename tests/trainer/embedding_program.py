"""Two parameter servers and a worker in one process hold a table in pieces and learn one step.

Prints as JSON: the server of each piece, of its moments, and the rows that the step changed.
"""

from __future__ import annotations

import json

import keras
import numpy as np
import tensorflow as tf

from components.train.backends.ports import reserved
from trainer.nn import embedding
from trainer.nn.optimizers import Adam
from trainer.replicas import strategy

ROWS, SIZE, PIECES = 40, 4, 8


def main() -> None:
    """Runs it all."""
    embedding.PIECE_BYTES = 4 * SIZE * ROWS // PIECES
    with reserved(3) as ports:
        addresses = [f"localhost:{port}" for port in ports]
    cluster = tf.train.ClusterSpec({"worker": addresses[:1], "ps": addresses[1:]})
    servers = [
        tf.distribute.Server(cluster, job_name=job, task_index=index, protocol="grpc")
        for job, index in (("worker", 0), ("ps", 0), ("ps", 1))
    ]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    servers_strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(servers_strategy)
    with servers_strategy.scope():
        table = embedding.Embedding(ROWS, SIZE, initializer=keras.initializers.RandomNormal)
        table.build((None, 1))
        optimizer = Adam(0.1)
        optimizer.build(table.trainable_variables)
    strategy.count_exactly(optimizer)
    before = whole(table)

    @tf.function
    def step() -> None:
        def replica() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(table(tf.constant([[3, 11], [12, 3]])) ** 2)
            optimizer.apply(tape.gradient(loss, table.trainable_variables), table.trainable_variables)

        servers_strategy.run(replica)

    coordinator.schedule(step)
    coordinator.join()
    assert int(optimizer.iterations.numpy()) == 1
    changed = np.flatnonzero((whole(table) != before).any(axis=1)).tolist()
    groups = {"weights": table.pieces, "momentums": optimizer._momentums, "velocities": optimizer._velocities}
    placed = {name: [server(variable) for variable in variables] for name, variables in groups.items()}
    print(json.dumps({**placed, "changed": changed}), flush=True)
    del servers


def whole(table: embedding.Embedding) -> np.ndarray:
    """The table's rows in order."""
    return np.stack([piece.numpy() for piece in table.pieces], axis=1).reshape(ROWS, SIZE)


def server(variable: keras.Variable) -> int:
    """Index of the parameter server that holds it."""
    return tf.DeviceSpec.from_string(variable.value.device).task


if __name__ == "__main__":
    main()

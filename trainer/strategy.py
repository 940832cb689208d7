"""From a role in a cluster to a `tf.distribute` strategy, or to a server that waits to be told."""

from __future__ import annotations

import os
import socket
import time

import keras
import tensorflow as tf

from trainer.cluster import Member
from trainer.errors import UserError
from trainer.stop import EXIT_CODE, Stop, StopMark

# A server told to stop holds variables that the chief has yet to save; a preempted machine leaves little time.
_SAVE_TIMEOUT_S = 8.0


def _resolver(member: Member) -> tf.distribute.cluster_resolver.ClusterResolver:
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({role: list(hosts) for role, hosts in member.addresses.items()}),
        task_type=member.role,
        task_id=member.index,
        rpc_layer="grpc",
    )


def create(name: str, member: Member) -> tf.distribute.Strategy:
    """The strategy of that name for this member.

    Raises:
      UserError: If the cluster cannot run it.
    """
    if name == "parameter_server":
        if not (member.addresses.get("ps") and member.addresses.get("worker")):
            raise UserError(f"parameter_server needs workers and parameter servers; the cluster has {_shape(member)}")
        return tf.distribute.ParameterServerStrategy(_resolver(member))
    if member.addresses.get("ps"):
        raise UserError(f"{name} has no use for parameter servers; the cluster has {_shape(member)}")
    if name == "one_device":
        if member.addresses:
            raise UserError(f"one_device is for a single replica; the cluster has {_shape(member)}")
        return tf.distribute.OneDeviceStrategy("GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0")
    if not member.addresses:  # one replica of its own: the same program without a server
        return create("one_device", member)
    return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=_resolver(member))


def _shape(member: Member) -> str:
    return ", ".join(f"{len(hosts)} {role}" for role, hosts in member.addresses.items()) or "one replica"


def count_exactly(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes the optimizer's step counter exact when several workers update it at once.

    Keras adds by reading and assigning, which loses updates between asynchronous workers (35 of 200 were seen lost);
    TensorFlow's own operation adds in place.
    """
    counter = optimizer.iterations
    counter.assign_add = lambda value: counter.value.assign_add(tf.cast(value, counter.value.dtype))


def serve(member: Member, stop: Stop, job_dir: str) -> None:
    """Serves as a parameter server or its worker until the process is ended. Never returns.

    On SIGTERM it sets the mark that the chief looks for, stays until the chief has saved and cleared it, and exits
    143; at once when the chief is gone.
    """
    chief = member.addresses["chief"][0]

    def leave() -> None:
        mark, deadline = StopMark(job_dir), time.monotonic() + _SAVE_TIMEOUT_S
        if _listens(chief):
            mark.set(member.name)
            while mark.is_set() and _listens(chief) and time.monotonic() < deadline:
                time.sleep(0.1)
        os._exit(EXIT_CODE)

    server = tf.distribute.Server(
        tf.train.ClusterSpec({role: list(hosts) for role, hosts in member.addresses.items()}),
        job_name=member.role,
        task_index=member.index,
        protocol="grpc",
    )
    stop.call(leave)
    server.join()


def _listens(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True

"""From a role in a cluster to a `tf.distribute` strategy, or to a server that waits to be told."""

from __future__ import annotations

import os
import time

import keras
import tensorflow as tf

from trainer.base.errors import UserError
from trainer.replicas.member import Member
from trainer.replicas.rendezvous import listens
from trainer.replicas.stop import EXIT_CODE, Stop, StopMark

# A server told to stop holds variables that the chief has yet to save; a preempted machine leaves little time.
_SAVE_TIMEOUT_S = 8.0


def _cluster(member: Member) -> tf.train.ClusterSpec:
    return tf.train.ClusterSpec({role: list(hosts) for role, hosts in member.addresses.items()})


def _resolver(member: Member) -> tf.distribute.cluster_resolver.ClusterResolver:
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        _cluster(member),
        task_type=member.role,
        task_id=member.index,
        rpc_layer="grpc",
    )


def create(
    name: str, member: Member, *, num_gpus: int | None, logical_cpus: int, all_reduce: str
) -> tf.distribute.Strategy:
    """The strategy of that name, for this member, by the flags of these names.

    Raises:
      UserError: If the cluster or the machine cannot run it.
    """
    gpus, shape = _gpus(num_gpus), _shape(member)
    if name == "parameter_server":
        if not (member.addresses.get("ps") and member.addresses.get("worker")):
            raise UserError(f"parameter_server needs workers and parameter servers; the cluster has {shape}")
        return tf.distribute.ParameterServerStrategy(_resolver(member))
    if member.addresses.get("ps"):
        raise UserError(f"{name} has no use for parameter servers; the cluster has {shape}")
    if name in ("one_device", "mirrored") and member.addresses:
        raise UserError(f"{name} is for a single replica; the cluster has {shape}")
    if all_reduce == "nccl" and not gpus:
        raise UserError("--all-reduce nccl needs GPUs and there are none; use ring or auto")
    if name == "mirrored":
        devices = [f"GPU:{i}" for i in range(gpus)] or [f"CPU:{i}" for i in range(logical_cpus)]
        reduction = tf.distribute.NcclAllReduce() if all_reduce == "nccl" else None
        return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
    if name == "one_device" or not member.addresses:  # a cluster of one needs no server
        return tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")
    implementation = tf.distribute.experimental.CommunicationImplementation[all_reduce.upper()]
    return tf.distribute.MultiWorkerMirroredStrategy(
        cluster_resolver=_resolver(member),
        communication_options=tf.distribute.experimental.CommunicationOptions(implementation=implementation),
    )


def _gpus(wanted: int | None) -> int:
    """GPUs to use; the others are hidden."""
    there = tf.config.list_physical_devices("GPU")
    wanted = len(there) if wanted is None else wanted
    if wanted > len(there):
        raise UserError(f"--num-gpus {wanted}, and this machine has {len(there)}; give what it has, or another machine")
    tf.config.set_visible_devices(there[:wanted], "GPU")
    return wanted


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

    On SIGTERM it sets the mark that the chief looks for, stays until the chief has saved and cleared it, and exits 143; at
    once when the chief is gone.
    """
    chief = member.addresses["chief"][0]

    def leave() -> None:
        mark, deadline = StopMark(job_dir), time.monotonic() + _SAVE_TIMEOUT_S
        if listens(chief):
            mark.set(member.name)
            while mark.is_set() and listens(chief) and time.monotonic() < deadline:
                time.sleep(0.1)
        os._exit(EXIT_CODE)

    server = tf.distribute.Server(_cluster(member), job_name=member.role, task_index=member.index, protocol="grpc")
    stop.call(leave)
    server.join()

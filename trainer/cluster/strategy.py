"""A replica as part of its cluster: its `tf.distribute` strategy, or its server, and what it does when others are lost."""

import contextlib
import threading
import time
from collections.abc import Iterator

import keras
import tensorflow as tf

from common.errors import UserError
from common.flags import at_least, variable
from trainer.cluster import exit_codes
from trainer.cluster.member import POOL_GPUS, Member
from trainer.cluster.rendezvous import begins_anew, gone, listens
from trainer.cluster.shutdown import Stop, StopRequests

# A server told to stop holds variables that the chief has yet to save; a preempted machine leaves little time.
_SAVE_TIMEOUT_S = 24.0
_PEER_DIES_S = 2.0
_CHIEF_SILENT_S = 60.0  # longer than TensorFlow takes to listen where the replicas met before


def _cluster(member: Member) -> tf.train.ClusterSpec:
    return tf.train.ClusterSpec({role: list(hosts) for role, hosts in member.addresses.items()})


def _resolver(member: Member) -> tf.distribute.cluster_resolver.ClusterResolver:
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        _cluster(member), task_type=member.role, task_id=member.index, rpc_layer="grpc"
    )


def create(
    name: str, member: Member, *, num_gpus: int | None, logical_cpus: int, all_reduce: str
) -> tf.distribute.Strategy:
    """Returns the strategy of that name for this member, by the flags of these names.

    Raises:
      UserError: If the cluster, or this machine, is not one for it.
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
    """Returns the number of GPUs to use, and hides the others."""
    gpus = tf.config.list_physical_devices("GPU")
    planned = variable(POOL_GPUS, at_least(0))
    if wanted is None and planned > len(gpus):
        how = "was built for them" if tf.test.is_built_with_cuda() else "was not built for GPUs"
        raise UserError(
            f"the cluster file gives this replica {planned} GPUs, and TensorFlow sees {len(gpus)}: TensorFlow "
            f"{tf.__version__} in this image {how}; use an image with CUDA and a driver for it, or a pool without GPUs"
        )
    wanted = len(gpus) if wanted is None else wanted
    if wanted > len(gpus):
        raise UserError(f"--num-gpus {wanted}, and this machine has {len(gpus)}; give what it has, or another machine")
    tf.config.set_visible_devices(gpus[:wanted], "GPU")
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


@contextlib.contextmanager
def naming_lost_replicas(member: Member) -> Iterator[None]:
    """Raises a `ConnectionError` that names the lost replicas in place of TensorFlow's errors of them."""
    try:
        yield
    except tf.errors.OpError as error:
        names = ", ".join(gone(member, within_s=_PEER_DIES_S if member.addresses else 0))
        if not names and not isinstance(error, tf.errors.UnavailableError):
            raise
        raise ConnectionError(
            f"{member.name} cannot go on without {names or 'another replica'}; the same command resumes the job"
        ) from None


def serve(member: Member, stop: Stop, requests: StopRequests) -> None:
    """Serves as a parameter server or its worker until the process is ended. Never returns.

    On SIGTERM it asks the chief, stays until that has saved, and exits; at once when the chief is gone. Without a chief
    for long it ends too: a chief that starts again has to meet it anew.
    """
    _gpus(None)
    chief = member.addresses["chief"][0]

    def leave() -> None:
        deadline = time.monotonic() + _SAVE_TIMEOUT_S
        try:
            if listens(chief):
                requests.send(member.name, lambda: listens(chief) and time.monotonic() < deadline)
        finally:  # also if the store fails
            stop.end(exit_codes.saved())

    server = tf.distribute.Server(_cluster(member), job_name=member.role, task_index=member.index, protocol="grpc")
    stop.call(leave)
    threading.Thread(target=_follow, args=(chief, stop), name="chief", daemon=True).start()
    server.join()


def _follow(chief: str, stop: Stop) -> None:
    """Ends this process when the chief has been started again, or nobody has listened at its address for a while."""
    seen_at, is_new = time.monotonic(), False
    while not is_new and time.monotonic() - seen_at < _CHIEF_SILENT_S:
        time.sleep(_CHIEF_SILENT_S / 10)
        if listens(chief):
            is_new = begins_anew(chief)
            seen_at = time.monotonic()
    why = "has been started again" if is_new else f"has been gone for {_CHIEF_SILENT_S:.0f} s"
    print(f"the chief at {chief} {why}; this server ends", flush=True)
    stop.end(exit_codes.failed(others=True))

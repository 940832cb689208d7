"""A replica as part of its cluster: its `tf.distribute` strategy, or its server, and what it does when others are lost."""

import contextlib
import threading
import time
from collections.abc import Iterator

import keras
import tensorflow as tf

from common.errors import UserError
from common.flags import at_least, variable
from common.machine import usable_cores
from trainer.cluster.control_channel import DONE, GREETING, LEFT, STOP, ControlChannel, first_byte
from trainer.cluster.member import POOL_GPUS, SERVER_THREADS, Member
from trainer.cluster.shutdown import Stop, failed_code

# A server told to stop holds variables that the chief has yet to save; a preempted machine leaves
# little time.
_SAVE_TIMEOUT_S = 24.0
_TICK_S = 1.0
_PEER_DIES_S, _POLL_S = 2.0, 0.05
_CHIEF_SILENT_S = 60.0  # longer than TensorFlow takes to listen where the replicas met before


def create(
    name: str, member: Member, *, num_gpus: int | None, all_reduce: str
) -> tf.distribute.Strategy:
    """Returns the strategy of that name for this member, by the flags of these names.

    Raises:
      UserError: If the cluster, or this machine, is not one for it.
    """
    gpus = use_gpus(num_gpus)
    fitting = (
        {member.default_strategy}
        if member.addresses
        else {"one_device", "mirrored", "multi_worker_mirrored"}
    )
    if name not in fitting or (name == "parameter_server" and "worker" not in member.addresses):
        shape = (
            ", ".join(f"{len(hosts)} {role}" for role, hosts in member.addresses.items())
            or "one replica"
        )
        raise UserError(
            f"--strategy {name} is not for this cluster of {shape}; parameter_server needs "
            "workers and parameter servers, "
            "multi_worker_mirrored chief and workers alone, one_device and mirrored a single "
            "replica"
        )
    if all_reduce == "nccl" and not gpus:
        raise UserError("--all-reduce nccl needs GPUs and there are none; use ring or auto")
    if name == "mirrored":
        devices = [
            device.name for device in tf.config.list_logical_devices("GPU" if gpus else "CPU")
        ]
        reduction = tf.distribute.NcclAllReduce() if all_reduce == "nccl" else None
        return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)
    if not member.addresses:
        return tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(member.addresses),
        task_type=member.role,
        task_id=member.index,
        rpc_layer="grpc",
    )
    if name == "parameter_server":
        return tf.distribute.ParameterServerStrategy(resolver)
    implementation = tf.distribute.experimental.CommunicationImplementation[all_reduce.upper()]
    options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    return tf.distribute.MultiWorkerMirroredStrategy(
        cluster_resolver=resolver, communication_options=options
    )


def use_gpus(wanted: int | None) -> int:
    """Returns the number of GPUs to use, by default those of the cluster file or all, and hides the others."""
    gpus = tf.config.list_physical_devices("GPU")
    if wanted is None:
        wanted = variable(POOL_GPUS, at_least(0)) or len(gpus)
    if wanted > len(gpus):
        build = "" if tf.test.is_built_with_cuda() else ", which is not built for them"
        raise UserError(
            f"--num-gpus, or else the cluster file, gives this replica {wanted} GPUs, and "
            f"TensorFlow {tf.__version__}{build}, "
            f"sees {len(gpus)}; use an image with CUDA and a driver for it, another machine, or a "
            "pool without GPUs"
        )
    tf.config.set_visible_devices(gpus[:wanted], "GPU")
    return wanted


def count_exactly(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes the optimizer's step counter exact when several workers update it at once.

    Keras adds by reading and assigning, which loses updates between asynchronous workers (35 of 200
    were seen lost); TensorFlow's own operation adds in place.
    """
    counter = optimizer.iterations
    counter.assign_add = lambda value: counter.value.assign_add(tf.cast(value, counter.value.dtype))


@contextlib.contextmanager
def naming_lost_replicas(member: Member) -> Iterator[None]:
    """Raises a `ConnectionError` that names the lost replicas in place of TensorFlow's errors of them."""
    try:
        yield
    except tf.errors.OpError as error:
        lost: list[str] = []
        deadline = time.monotonic() + _PEER_DIES_S
        # A process that dies may close its port last.
        while member.others and not lost and time.monotonic() < deadline:
            lost = [name for name, address in member.others.items() if first_byte(address) is None]
            time.sleep(_POLL_S)
        if not lost and not isinstance(error, tf.errors.UnavailableError):
            raise
        names = ", ".join(lost) or "another replica"
        raise ConnectionError(
            f"{member.name} cannot go on without {names}; the same command resumes the job"
        ) from None


def serve(member: Member, stop: Stop, channel: ControlChannel) -> None:
    """Serves as a parameter server or its worker until the process is ended. Never returns.

    On SIGTERM it asks the chief, stays until that has saved, and exits; at once when the chief is
    gone. Without a chief for long it ends too: a chief that starts again has to meet it anew.
    """
    use_gpus(None)
    chief = member.addresses["chief"][0]

    def await_save() -> None:
        deadline = time.monotonic() + _SAVE_TIMEOUT_S
        channel.send(STOP)
        while first_byte(chief) is not None and time.monotonic() < deadline:
            if channel.received(LEFT, DONE, within_s=_TICK_S):
                return

    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=max(SERVER_THREADS, usable_cores())
    )
    server = tf.distribute.Server(
        member.addresses, job_name=member.role, task_index=member.index, config=config
    )
    threading.Thread(target=follow, args=(chief, stop), name="chief", daemon=True).start()
    with stop.at_once(await_save):
        server.join()


def follow(chief: str, stop: Stop, silent_s: float = _CHIEF_SILENT_S) -> None:
    """Ends this process when the chief has been started again, or nobody has listened at its address for `silent_s`."""
    seen_at = time.monotonic()
    while time.monotonic() - seen_at < silent_s:
        time.sleep(silent_s / 10)
        answer = first_byte(chief)
        if answer == GREETING:
            break
        if answer is not None:
            seen_at = time.monotonic()
    print(
        f"the chief at {chief} has been started again, or gone for {silent_s:.0f} s; this server "
        "ends"
    )
    stop.end(failed_code())

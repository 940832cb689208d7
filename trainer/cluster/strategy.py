"""A replica in its cluster: its `tf.distribute` strategy or its server, and the loss of others."""

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

# A server with a stop request holds variables that the chief has yet to save, and a preempted
# machine leaves little time.
_SAVE_TIMEOUT_S = 24.0
_TICK_S = 1.0
_PEER_DIES_S, _POLL_S = 2.0, 0.05
# After the rendezvous the chief's port is closed until TensorFlow listens at it, which takes less.
_CHIEF_SILENT_S = 60.0


def create(
    name: str, member: Member, *, num_gpus: int | None, all_reduce: str
) -> tf.distribute.Strategy:
    """Returns the strategy of that name for this replica, and hides other GPUs from TensorFlow.

    With `multi_worker_mirrored`, a single replica gets a `OneDeviceStrategy`.

    Args:
      name: Value of `--strategy`.
      member: This replica.
      num_gpus: Number of GPUs to use; None for that in `TRAINER_POOL_GPUS`, or else all.
      all_reduce: Value of `--all-reduce`.

    Raises:
      UserError: If the strategy does not fit the cluster, the machine lacks the GPUs,
        `TRAINER_POOL_GPUS` is no number, or NCCL is to be used without any GPU.
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
            f"--strategy {name} is not for this cluster of {shape}; parameter_server needs workers "
            "and parameter servers, multi_worker_mirrored chief and workers alone, one_device and "
            "mirrored a single replica"
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
    """Returns the number of GPUs to use, and hides the other ones from TensorFlow.

    Args:
      wanted: Number of GPUs; None for that in the environment variable `TRAINER_POOL_GPUS`, which
        the cluster file sets, or all if it is 0 or not set.

    Raises:
      UserError: If there are fewer, or the variable is no number.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if wanted is None:
        wanted = variable(POOL_GPUS, at_least(0)) or len(gpus)
    if wanted > len(gpus):
        build = "" if tf.test.is_built_with_cuda() else ", which is not built for them"
        raise UserError(
            f"--num-gpus, or else the cluster file, gives this replica {wanted} GPUs, and "
            f"TensorFlow {tf.__version__}{build}, sees {len(gpus)}; use an image with CUDA and a "
            "driver for it, another machine, or a pool without GPUs"
        )
    tf.config.set_visible_devices(gpus[:wanted], "GPU")
    return wanted


def count_exactly(optimizer: keras.optimizers.Optimizer) -> None:
    """Makes the optimizer's step counter exact when several workers update it at once.

    Keras reads, adds and assigns, which loses updates between asynchronous workers (35 of 200 were
    seen lost). TensorFlow's own operation adds in place.
    """
    counter = optimizer.iterations
    counter.assign_add = lambda value: counter.value.assign_add(tf.cast(value, counter.value.dtype))


@contextlib.contextmanager
def naming_lost_replicas(member: Member) -> Iterator[None]:
    """Context manager that turns TensorFlow's errors about lost replicas into one that names them.

    Raises:
      ConnectionError: In place of a TensorFlow error, if another replica does not answer any more
        or the error is `UnavailableError`. Other errors pass unchanged.
    """
    try:
        yield
    except tf.errors.OpError as error:
        lost: list[str] = []
        deadline = time.monotonic() + _PEER_DIES_S
        # A process that is ending may close its port only after the error is seen here.
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
    """Runs the server of a parameter server or worker until the process ends; never returns.

    On SIGTERM it asks the chief to save, and ends the process with `saved_code()` when the chief
    has saved, is gone, or 24 seconds have passed. It also ends the process, with `failed_code()`,
    if the chief was started again or is gone for a minute: a new chief waits until all replicas
    have connected to it again.

    Args:
      member: This replica, of role `ps` or `worker` in a parameter-server job.
      stop: Stop request of this process.
      channel: Connection to the chief.

    Raises:
      UserError: If the machine lacks the GPUs that the cluster file has.
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
        inter_op_parallelism_threads=max(SERVER_THREADS, usable_cores()),
        intra_op_parallelism_threads=tf.config.threading.get_intra_op_parallelism_threads(),
    )
    server = tf.distribute.Server(
        member.addresses, job_name=member.role, task_index=member.index, config=config
    )
    threading.Thread(target=follow, args=(chief, stop), name="chief", daemon=True).start()
    with stop.at_once(await_save):
        server.join()


def follow(chief: str, stop: Stop, silent_s: float = _CHIEF_SILENT_S) -> None:
    """Ends this process when the chief was started again, or has not listened for a while.

    Args:
      chief: Address `host:port`.
      stop: Ends the process, with `failed_code()`.
      silent_s: Seconds without anybody listening at the address.
    """
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

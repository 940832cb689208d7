"""A training job from start to export, as one replica sees it."""

import dataclasses
import math

import keras
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest
from trainer import model_check, watchdog
from trainer.cluster import devices, rendezvous, strategy
from trainer.cluster.member import Member
from trainer.cluster.shutdown import Stop
from trainer.data import placement, records
from trainer.evaluator import follow, has_evaluator
from trainer.job.journal import Journal
from trainer.options import Options
from trainer.training import Training

_PEER_DIES_S = 2.0


def run(opts: Options, member: Member, manifest: Manifest, stop: Stop) -> int:
    """Plays this member's part until the job is done. Returns the exit code."""
    if opts.patience and has_evaluator():
        raise UserError(
            f"--patience {opts.patience} goes by evaluations of the chief, and this cluster has an evaluator; leave out one"
        )
    if opts.precision == "auto":
        opts = dataclasses.replace(opts, precision=devices.precision(opts.num_gpus))
    configure(opts)
    # In every call the others may have to wait for the chief, who saves and evaluates; its silence says if all hang.
    leads = member.is_chief or member.role == "evaluator"
    others = max(1, sum(map(len, member.addresses.values())) - 1)
    journal = Journal(opts.job_dir, member.name, beats=not leads, sharers=1 if leads else others)
    stop.last = journal.outbox.send
    if leads:
        watchdog.watch(journal, stop)
    try:
        return _run(opts, member, manifest, stop, journal)
    finally:  # in whichever way
        stop.last()


def _run(opts: Options, member: Member, manifest: Manifest, stop: Stop, journal: Journal) -> int:
    journal.status("starting", 0)
    found = devices.described(opts.num_gpus)
    journal.event("machine", 0, devices=found, precision=opts.precision)
    if member.is_chief:
        print(f"{member.name} computes in {opts.precision} on {found}", flush=True)
        if told := devices.advice(opts.precision, opts.num_gpus):
            print(told, flush=True)
    if member.role == "evaluator":
        return follow(opts, manifest, journal, stop)
    with stop.at_once():
        on_gpus = opts.num_gpus != 0 and bool(tf.config.list_physical_devices("GPU"))
        choice = placement.choose(
            manifest,
            data_dir=opts.data_dir,
            budget_bytes=placement.budget(member.readers_here),
            wish=opts.reader,
            cache_dir=opts.cache_dir,
            asynchronous=opts.strategy == "parameter_server",
            gpu_bytes=placement.gpu_budget() if on_gpus else math.inf,
        )
        place = records.locate(choice, manifest, member, journal.alive)
        # Before the others are waited for, where TensorFlow lets a process compute before it joins them.
        if member.is_chief and opts.strategy == "parameter_server":
            model_check.run(opts.builder(manifest), opts, manifest)
        line = rendezvous.meet(member, job=opts.job_dir, timeout_s=opts.start_timeout_s)
    if opts.strategy == "parameter_server" and member.role in ("worker", "ps"):
        journal.status("serving", 0)
        strategy.serve(member, stop, opts.job_dir, line)
    try:
        return Training(opts, member, manifest, place, journal, stop, line).run()
    except tf.errors.OpError as error:
        gone = ", ".join(rendezvous.gone(member, within_s=_PEER_DIES_S if member.addresses else 0))
        if not gone and not isinstance(error, tf.errors.UnavailableError):
            raise
        raise ConnectionError(
            f"{member.name} cannot go on without {gone or 'another replica'}; the same command resumes the job"
        ) from None


def configure(opts: Options) -> None:
    """Sets what TensorFlow and Keras must know before the first operation."""
    if opts.threads:
        tf.config.threading.set_intra_op_parallelism_threads(opts.threads)
        tf.config.threading.set_inter_op_parallelism_threads(opts.threads)
    if opts.logical_cpus > 1:
        split = [tf.config.LogicalDeviceConfiguration()] * opts.logical_cpus
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], split)
    if opts.deterministic:
        tf.config.experimental.enable_op_determinism()
    if opts.precision != "float32":
        keras.mixed_precision.set_dtype_policy(f"mixed_{opts.precision}")
    keras.utils.set_random_seed(opts.seed)

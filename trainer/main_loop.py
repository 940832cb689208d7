"""A training job from start to export, as one replica sees it."""

import contextlib
import math
import os
import time
from collections.abc import Callable

import keras
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest
from trainer import learning, watchdog
from trainer.async_steps import AsyncSteps
from trainer.cluster import control_channel, devices, strategy
from trainer.cluster.control_channel import DONE, LEFT, STOP, ControlChannel
from trainer.cluster.member import Member
from trainer.cluster.shutdown import Stop, saved_code
from trainer.data import placement
from trainer.data.reader import Reader, open_reader
from trainer.evaluation import SPLIT
from trainer.evaluator import await_evaluator, follow, has_evaluator
from trainer.export import export
from trainer.job import done
from trainer.job.journal import Journal, last
from trainer.models import registry
from trainer.options import Options
from trainer.setup import Setup, prepare
from trainer.sync_steps import SyncSteps
from trainer.train_step import TrainStep, Window


def run(opts: Options, member: Member, manifest: Manifest, stop: Stop) -> int:
    """Runs this replica until the job is done. Returns the exit code."""
    if opts.patience and has_evaluator():
        raise UserError(
            f"--patience {opts.patience} goes by evaluations of the chief, and this cluster has an evaluator; leave out one"
        )
    configure(opts)
    # In every call the others may have to wait for the chief, who saves and evaluates; its silence says if all hang.
    leads = member.is_chief or member.role == "evaluator"
    journal = Journal(opts.job_dir, member.name, beats=not leads)
    stop.last = journal.outbox.send
    if leads:
        watchdog.watch(journal, stop)
    try:
        return _run(opts, member, manifest, stop, journal)
    finally:  # in whichever way
        stop.last()


def _run(opts: Options, member: Member, manifest: Manifest, stop: Stop, journal: Journal) -> int:
    journal.status("starting", 0)
    description = devices.description(opts.num_gpus)
    journal.event("machine", 0, devices=description, precision=opts.precision)
    if member.is_chief:
        print(f"{member.name} computes in {opts.precision} on {description}", flush=True)
    if member.role == "evaluator":
        return follow(opts, manifest, journal, stop)
    with stop.at_once():
        place = _locate_split(opts, member, manifest, journal)
        channel = control_channel.join(member, job=opts.job_dir, timeout_s=opts.start_timeout_s)
    if opts.strategy == "parameter_server" and not member.is_chief:
        journal.status("serving", 0)
        strategy.serve(member, stop, channel)
    with strategy.naming_lost_replicas(member):
        return main_loop(opts, member, manifest, place, journal, stop, channel)


def configure(opts: Options) -> None:
    """Sets what TensorFlow and Keras must know before the first operation."""
    if opts.threads:
        tf.config.threading.set_intra_op_parallelism_threads(opts.threads)
        tf.config.threading.set_inter_op_parallelism_threads(opts.threads)
    if opts.deterministic:
        tf.config.experimental.enable_op_determinism()
    if opts.precision != "float32":
        keras.mixed_precision.set_dtype_policy(f"mixed_{opts.precision}")
    keras.utils.set_random_seed(opts.seed)


def main_loop(
    opts: Options,
    member: Member,
    manifest: Manifest,
    place: placement.Choice,
    journal: Journal,
    stop: Stop,
    channel: ControlChannel,
) -> int:
    """Trains from the newest checkpoint to the last step, evaluates and exports. Returns the exit code."""
    started = time.time()
    synchronous = opts.strategy != "parameter_server"
    # Until the first step there is nothing to save; but synchronous replicas leave together, or the others hang.
    with contextlib.nullcontext() if synchronous and member.addresses else stop.at_once():
        job = prepare(opts, member, manifest, journal, channel)
        steps = _make_steps(opts, member, job, _open_reader(opts, manifest, place, job))

    def is_stop_requested() -> bool:
        return stop.requested or channel.received(STOP)

    journal.status("training", job.first_step)
    step, is_done = _train(opts, member, job, steps, is_stop_requested)
    if is_done:
        with stop.at_once(lambda: channel.send(LEFT)):  # all is saved: what is interrupted now, a resume does again
            if member.is_chief:
                _export(opts, manifest, job, journal, step, started)
                channel.send(DONE)
            else:
                is_done = channel.wait_for_end()
    if is_done:
        journal.event("done", step, steps=step - job.first_step)
        journal.status("done", step)
    else:
        journal.event("preempted", step)
        channel.send(LEFT)
    if not member.is_chief:
        channel.wait_for_end()
    elif not is_done:
        print(f"told to stop; saved at step {step}", flush=True)
    if member.is_chief and synchronous:  # the servers of parameters serve until they are told to end
        channel.wait_for_others()
    return 0 if is_done else saved_code()


def _train(
    opts: Options,
    member: Member,
    job: Setup,
    steps: SyncSteps | AsyncSteps,
    is_stop_requested: Callable[[], bool],
) -> tuple[int, bool]:
    """Steps, evaluates and saves. Returns the step it ends at, whose state is saved, and whether nothing stopped it."""
    checkpoints, scores, last_step = job.checkpoints, job.scores, job.size.last_step

    def evaluate(step: int) -> bool:
        checkpoints.copy_state(step)
        return job.validator.evaluate(job.state, is_stop_requested)

    def is_training_enough(step: int) -> bool:
        return bool(opts.patience) and steps.agree(member.is_chief and scores.is_exhausted(step, opts.patience))

    step, is_stopping = job.first_step, False
    is_enough = is_training_enough(step)
    while step < last_step and not (is_stopping or is_enough):
        wish = is_stop_requested()
        until = _next_pause(step, opts.eval_every_steps, opts.checkpoint_num_steps, last_step=last_step)
        window = steps.run(step, until, stop=wish, drain=wish or checkpoints.is_late)
        step += window.steps
        job.meter.add(step, window)
        _check_progress(step, window)
        is_stopping = window.stop and steps.idle
        ends = is_stopping or step >= last_step
        if steps.idle and not ends and opts.eval_every_steps and step % opts.eval_every_steps == 0:
            if job.validator:
                evaluate(step)
            ends = is_enough = is_training_enough(step)
        if ends or (steps.idle and checkpoints.is_due(step)):
            checkpoints.save(step)
    checkpoints.wait()
    # Last, when the state is safe, and also if an earlier attempt trained to the end and got no further.
    is_scored = not job.validator or (scores.latest_step == step and (is_enough or step == job.first_step))
    return step, not is_stopping and (is_scored or evaluate(step))


def _next_pause(step: int, *intervals: int, last_step: int) -> int:
    """Returns the next step at which something may be due, the same on all replicas: they make equal calls."""
    return min([last_step, *(step - step % every + every for every in intervals if every)])


def _check_progress(step: int, window: Window) -> None:
    if not math.isfinite(loss := window.sums[0]):
        raise UserError(f"the loss is {loss} at step {step}: training diverged; lower --learning-rate")


def _locate_split(opts: Options, member: Member, manifest: Manifest, journal: Journal) -> placement.Choice:
    on_gpus = opts.num_gpus != 0 and bool(tf.config.list_physical_devices("GPU"))
    choice = placement.choose(
        manifest,
        data_dir=opts.data_dir,
        budget_bytes=placement.budget(member.readers_here, on_gpus),
        wish=opts.reader,
        cache_dir=opts.cache_dir,
    )
    if member.is_chief:
        print(choice, flush=True)
    # A parameter server holds variables only.
    return choice if member.role == "ps" else placement.provide_files(choice, manifest, journal.alive)


def _open_reader(opts: Options, manifest: Manifest, place: placement.Choice, job: Setup) -> Reader:
    return open_reader(
        place,
        manifest,
        global_batch=job.size.batch,
        seed=opts.seed,
        prepare=opts.weighted(job.build, manifest).prepare,
        augment=opts.augment or registry.default(opts.model, "AUGMENT"),
    )


def _make_steps(opts: Options, member: Member, job: Setup, reader: Reader) -> SyncSteps | AsyncSteps:
    model, optimizer = job.state.model, job.state.optimizer
    weight_decay, decayed = learning.decay(opts, model)
    step = TrainStep(
        model=model,
        optimizer=optimizer,
        task=job.build.task,
        label=job.label,
        global_batch=job.size.batch,
        seed=opts.seed,
        weight_decay=weight_decay,
        decayed=decayed,
        jit_compile=opts.jit_compile,
    )
    if opts.strategy != "parameter_server":
        return SyncSteps(job.strategy, step, reader, member.is_chief, job.first_step)
    strategy.count_exactly(optimizer)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(job.strategy)
    return AsyncSteps(coordinator, step, reader, workers=len(member.addresses["worker"]))


def _export(opts: Options, manifest: Manifest, job: Setup, journal: Journal, step: int, started: float) -> None:
    """Exports the last or the best weights, and writes `DONE.json`."""
    if has_evaluator() and manifest.splits[SPLIT].examples:
        await_evaluator(job.scores, step, journal)
    exported = step
    if opts.export == "best" and "best" in job.scores.load():
        exported = job.scores.restore_best(job.state)
    else:
        job.state.take(step)
        if opts.export == "best":
            print(f"--export best: no evaluation had a finite score; step {step} is exported", flush=True)
    journal.status("exporting", step)
    export(job.state.weights(), job.build, manifest, os.path.join(opts.job_dir, "model"), job.learnt_records)
    journal.event("export", step, exported_step=exported)
    # An attempt that only had to export has not seen a step.
    final = job.meter.final() if step > job.first_step else last(opts.job_dir, journal.name, "step")
    done.Done(
        step=step,
        epochs=step * job.size.batch / job.size.examples,
        exported_step=exported,
        seconds=round(time.time() - started, 2),
        validation=job.scores.load(),
        stopped_early=opts.patience if step < job.size.last_step else None,
        loss=final.get("loss"),
        examples_per_s=final.get("examples_per_s"),
        **{name: final.get(name) for name in job.build.task.metric_names},
    ).save(opts.job_dir)

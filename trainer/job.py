"""A training job from start to export, as one replica sees it."""

from __future__ import annotations

import contextlib
import os
import time

import keras
import tensorflow as tf

from trainer import done, identity, learning, models, records, rendezvous, strategy
from trainer.checkpoint import Checkpoints
from trainer.cluster import Member
from trainer.errors import UserError
from trainer.evaluator import await_evaluator, follow, has_evaluator
from trainer.export import export
from trainer.journal import Journal, last
from trainer.loop import Loop
from trainer.manifest import Manifest
from trainer.meter import Meter
from trainer.options import Options
from trainer.state import State
from trainer.steps import AsyncSteps, SyncSteps, TrainStep
from trainer.stop import EXIT_CODE, Stop, StopMark
from trainer.validation import SPLIT, Scores, Validator

# A preempted machine leaves little time; an export, or an evaluator that the chief waits for, takes as long as it takes.
_CHIEF_SAVES_S, _CHIEF_EXPORTS_S = 8.0, 3600.0
_PEER_DIES_S = 2.0


def run(opts: Options, member: Member, manifest: Manifest, stop: Stop) -> int:
    """Plays this member's part until the job is done. Returns the exit code."""
    configure(opts)
    journal = Journal(opts.job_dir, member)
    journal.status("starting", 0)
    if member.role == "evaluator":
        return follow(opts, manifest, journal, stop)
    with stop.at_once():
        place = records.locate(manifest, opts, member, lambda: journal.status("starting", 0))
        rendezvous.meet(member, job=opts.job_dir, timeout_s=opts.start_timeout_s)
    if opts.strategy == "parameter_server" and member.role in ("worker", "ps"):
        journal.event("serve", 0)
        journal.status("serving", 0)
        strategy.serve(member, stop, opts.job_dir)
    try:
        return _train(opts, member, manifest, place, journal, stop)
    except tf.errors.OpError as error:
        gone = ", ".join(rendezvous.gone(member, within_s=_PEER_DIES_S if member.addresses else 0))
        if not gone and not isinstance(error, tf.errors.UnavailableError):
            raise
        raise rendezvous.Lost(
            f"{member.name} cannot go on without {gone or 'another replica'}; the same command resumes the job"
        ) from None


def _train(
    opts: Options, member: Member, manifest: Manifest, place: records.Place, journal: Journal, stop: Stop
) -> int:
    started = time.time()
    asynchronous, chief = opts.strategy == "parameter_server", member.is_chief
    mark = StopMark(opts.job_dir)
    if chief:
        mark.clear()  # a mark from an earlier attempt asks nothing of this one
    else:
        stop.call(lambda: mark.set(member.name))  # the chief may evaluate for long, and the others only wait for it
    # Until the first step there is nothing to save; but synchronous replicas leave together, or the others hang.
    with stop.at_once() if asynchronous or not member.addresses else contextlib.nullcontext():
        distribution = strategy.create(opts, member)
        replicas = 1 if asynchronous else distribution.num_replicas_in_sync
        examples = manifest.split("train").examples
        batch, last_step = opts.global_batch_size(replicas), opts.last_step(examples, replicas)
        if batch < replicas:
            raise UserError(
                f"--batch-size {batch} leaves some of {replicas} replicas without an example; use {replicas} or more"
            )
        if (before := identity.settle(opts.job_dir, "batch_size", batch, write=chief)) != batch:
            raise UserError(
                f"--per-replica-batch-size {opts.per_replica_batch_size} on {replicas} replicas makes {batch} examples a "
                f"step, and this job began with {before}; use as many replicas as then, or another --job-dir"
            )
        # A job that is asked for more steps later keeps the schedule that it began with.
        horizon = identity.settle(opts.job_dir, "horizon_steps", opts.horizon_steps or last_step, write=chief)
        build = models.builder(opts, manifest)
        with distribution.scope():
            model = build()
            optimizer = learning.optimizer(opts, examples=examples, examples_per_step=batch, horizon_steps=horizon)
            optimizer.build(model.trainable_variables)
        state = State(model, optimizer)
        checkpoints = Checkpoints(opts.job_dir, state, keep=opts.keep_checkpoints)
        first_step = checkpoints.restore()
        if not first_step and (record := done.load(opts.job_dir)):
            raise UserError(
                f"{opts.job_dir} was done at step {record.step}, and its checkpoints are gone; put them back, or use "
                "another --job-dir"
            )
        facts = {"data_dir": opts.data_dir, "fingerprint": manifest.fingerprint, "options": opts.identity()}
        journal.event("resume" if first_step else "start", first_step, **facts)

        weight_decay, decayed = learning.decay(opts, model)
        step = TrainStep(
            model=model,
            optimizer=optimizer,
            label=manifest.label,
            global_batch=batch,
            seed=opts.seed,
            weight_decay=weight_decay,
            decayed=decayed,
        )

        reader = records.open_reader(
            place,
            manifest,
            global_batch=batch,
            seed=opts.seed,
            prepare=build.prepare,
            augment=opts.augment or models.default(opts, "AUGMENT"),
            asynchronous=asynchronous,
        )
        if asynchronous:
            strategy.count_exactly(optimizer)
            coordinator = tf.distribute.coordinator.ClusterCoordinator(distribution)
            steps = AsyncSteps(coordinator, step, reader, workers=len(member.addresses["worker"]))
        else:
            steps = SyncSteps(distribution, step, reader, chief, first_step)
            steps.trace()
        # The side-car evaluates where there is one; else the chief does.
        validates = chief and not has_evaluator() and manifest.splits[SPLIT].examples > 0
        loop = Loop(
            opts=opts,
            last_step=last_step,
            steps=steps,
            state=state,
            checkpoints=checkpoints if chief else None,
            validator=Validator(build, manifest, opts.data_dir, opts.eval_batch_size) if validates else None,
            scores=Scores(opts.job_dir),
            meter=Meter(opts.job_dir, last_step, journal, optimizer, batch, replicas, chief),
            journal=journal,
            wants_to_stop=lambda: stop.requested or (chief and mark.is_set()),
        )
        if chief:
            print(
                f"{opts.model} on {manifest.name}: {examples} examples, batch {batch}, {model.count_params()} parameters; "
                f"{opts.strategy}, training replicas: {len(member.addresses['worker']) if asynchronous else replicas}; "
                f"from step {first_step} to {last_step}",
                flush=True,
            )
            if horizon < last_step and learning.falls(opts):
                print(
                    f"the learning rate is 0 from step {horizon} on, where this job's schedule ends; for {last_step} steps "
                    f"of learning begin a job with --horizon-steps {last_step}",
                    flush=True,
                )
    reached, finished = loop.run(first_step)
    if not finished:
        if chief:
            mark.clear()
            print(f"told to stop; saved at step {reached}", flush=True)
        if not asynchronous:
            rendezvous.part(member, completed=lambda: reached in checkpoints.steps(), timeout_s=_CHIEF_SAVES_S)
        return EXIT_CODE
    with stop.at_once():  # all is saved: what is interrupted now, a resume does again
        if chief:
            if has_evaluator():
                await_evaluator(loop.scores, reached, opts.evaluator_timeout_s)
            exported = reached
            if opts.export == "best" and loop.scores.load():
                exported = loop.scores.restore_best(state)
            else:
                state.take(reached)
            journal.status("exporting", reached)
            export(state.weights(), build, manifest, os.path.join(opts.job_dir, "model"))
            journal.event("export", reached, exported_step=exported)
            # An attempt that only had to export has not seen a step.
            final = loop.meter.final() if reached > first_step else last(opts.job_dir, member, "step")
            done.Done(
                step=reached,
                epochs=reached * batch / examples,
                seconds=round(time.time() - started, 2),
                validation=loop.scores.load(),
                **{name: final.get(name) for name in ("loss", "accuracy", "examples_per_s")},
            ).save(opts.job_dir)
        journal.event("done", reached, steps=reached - first_step)
        journal.status("done", reached)
        journal.flush()
        if not asynchronous:
            rendezvous.part(member, completed=lambda: _is_done(opts.job_dir, reached), timeout_s=_CHIEF_EXPORTS_S)
    return 0


def _is_done(job_dir: str, step: int) -> bool:
    record = done.load(job_dir)
    return record is not None and record.step >= step


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
    if opts.precision == "bfloat16":
        keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    keras.utils.set_random_seed(opts.seed)

"""A training job from start to export, as one replica sees it."""

from __future__ import annotations

import os
import time

import keras
import tensorflow as tf

from trainer import models, records, strategy
from trainer.checkpoint import Checkpoints
from trainer.cluster import Member
from trainer.done import Done
from trainer.export import export
from trainer.journal import Journal
from trainer.manifest import Manifest
from trainer.meter import Meter
from trainer.options import Options
from trainer.steps import AsyncSteps, SyncSteps, TrainStep
from trainer.stop import EXIT_CODE, Stop, StopMark


def run(opts: Options, member: Member, manifest: Manifest, stop: Stop) -> int:
    """Trains to `opts.train_steps`, or serves those who do. Returns the exit code."""
    started = time.time()
    _configure(opts)
    journal = Journal(opts.job_dir, member)
    journal.status("starting", 0)
    records.verify(manifest, opts.data_dir, "train")
    asynchronous = opts.strategy == "parameter_server"
    if asynchronous and member.role in ("worker", "ps"):
        journal.event("serve", 0)
        journal.status("serving", 0)
        strategy.serve(member, stop, opts.job_dir)
    chief = member.is_chief
    mark = StopMark(opts.job_dir)
    if chief:
        mark.clear()  # a mark from an earlier attempt asks nothing of this one

    distribution = strategy.create(opts.strategy, member)
    build = models.load(opts.model).build
    with distribution.scope():
        model = build(manifest)
        optimizer = _optimizer(opts)
        optimizer.build(model.trainable_variables)
        checkpoints = Checkpoints(opts.job_dir, model, optimizer, keep=opts.keep_checkpoints)
    step = first_step = checkpoints.restore()
    facts = {"data_dir": opts.data_dir, "fingerprint": manifest.fingerprint, "options": opts.identity()}
    journal.event("resume" if step else "start", step, **facts)

    replicas = 1 if asynchronous else distribution.num_replicas_in_sync
    examples = manifest.split("train").examples
    train_step = TrainStep(
        model=model,
        optimizer=optimizer,
        label=manifest.label,
        examples=examples,
        global_batch=opts.global_batch_size(replicas),
        seed=opts.seed,
    )

    def columns() -> records.Columns:
        return records.resident(manifest, opts.data_dir, "train")

    if asynchronous:
        strategy.count_exactly(optimizer)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(distribution)
        steps = AsyncSteps(coordinator, train_step, columns, workers=len(member.addresses["worker"]))
    else:
        steps = SyncSteps(distribution, train_step, columns(), chief)
    if chief:
        print(
            f"{opts.model} on {manifest.name}: {examples} examples, global batch {train_step.global_batch}, "
            f"{model.count_params()} parameters, {opts.strategy}; from step {step} to {opts.train_steps}",
            flush=True,
        )
    meter = Meter(opts, journal, optimizer, train_step.global_batch, replicas, chief)

    def save() -> None:
        if chief:
            journal.status("saving", step)
            journal.event("checkpoint", step, seconds=round(checkpoints.save(step), 4))
            journal.flush()

    journal.status("training", step)
    saved = step
    while step < opts.train_steps:
        until = min(opts.train_steps, step - step % opts.checkpoint_num_steps + opts.checkpoint_num_steps)
        wanted = stop.requested or (asynchronous and mark.is_set())
        window = steps.run(step, until, wanted)
        step += window.steps
        meter.add(step, window)
        leaving = window.stop and steps.idle
        if (step == until or leaving) and step != saved:
            save()
            saved = step
        if leaving and step < opts.train_steps:
            journal.event("preempted", step)
            journal.flush()
            if chief:
                mark.clear()
                print(f"told to stop; saved at step {step}", flush=True)
            return EXIT_CODE

    if chief:
        journal.status("exporting", step)
        export(model, build, manifest, os.path.join(opts.job_dir, "model"))
        journal.event("export", step)
        Done(step=step, seconds=round(time.time() - started, 2), **meter.final()).save(opts.job_dir)
    journal.event("done", step, steps=step - first_step)
    journal.status("done", step)
    journal.flush()
    if not asynchronous:
        _barrier(distribution)
    return 0


def _configure(opts: Options) -> None:
    if opts.threads:
        tf.config.threading.set_intra_op_parallelism_threads(opts.threads)
        tf.config.threading.set_inter_op_parallelism_threads(opts.threads)
    if opts.deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(opts.seed)


def _optimizer(opts: Options) -> keras.optimizers.Optimizer:
    defaults = models.load(opts.model)
    rate = opts.learning_rate or defaults.LEARNING_RATE
    if (opts.optimizer or defaults.OPTIMIZER) == "adam":
        return keras.optimizers.Adam(rate)
    return keras.optimizers.SGD(rate, momentum=opts.momentum)


def _barrier(distribution: tf.distribute.Strategy) -> None:
    """Waits for all replicas: one that left early would make the others fail while the chief still exports."""

    @tf.function
    def meet() -> tf.Tensor:
        return distribution.reduce("SUM", distribution.run(tf.ones, args=([],)), axis=None)

    meet()

"""A training job from start to export, as one replica executes it."""

import contextlib
import math
import os
import platform
import time
from collections.abc import Callable

import keras
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest
from common.provenance import TrainedOn
from trainer import learning, model_check, warm_start, watchdog
from trainer.async_steps import AsyncSteps
from trainer.cluster import control_channel, devices, strategy
from trainer.cluster.control_channel import DONE, LEFT, STOP, ControlChannel
from trainer.cluster.member import Member
from trainer.cluster.shutdown import Stop, saved_code
from trainer.data import placement
from trainer.data.example_weights import weighted
from trainer.data.reader import open_reader
from trainer.data.shards import content_hashes
from trainer.evaluation import SPLIT, Scores, Validator, await_evaluator, follow, has_evaluator
from trainer.export import export
from trainer.job import done, identity
from trainer.job.checkpoints import Checkpoints
from trainer.job.journal import Journal, last
from trainer.job.state import State
from trainer.learning import TrainingSize
from trainer.meter import Meter
from trainer.nn import weights
from trainer.nn.layers import exchanges, synchronize
from trainer.options import Options
from trainer.sync_steps import SyncSteps
from trainer.train_step import TrainStep

_START_TIMEOUT_S = 600.0  # For which replicas wait for each other at the start.


def run(opts: Options, member: Member, manifest: Manifest, stop: Stop) -> int:
    """Runs this replica until the job is done or it is stopped.

    Parameter servers and their workers never return; their process ends. An evaluator scores
    checkpoints and does not train.

    Args:
      opts: Options of the job.
      member: This replica.
      manifest: Manifest of the dataset.
      stop: Stop request; the caller must end the process by `stop.end`, which sends the journal.

    Returns:
      The exit code: 0, or `saved_code()` after a stop request.

    Raises:
      UserError: If options, model, dataset, cluster or machine do not fit each other, or training
        diverges.
      TimeoutError: If replicas are missing at the start.
      ConnectionError: If another replica is lost, or a store does not answer.
      OSError: If checkpoints or the export cannot be written or read.
    """
    if opts.patience and has_evaluator():
        raise UserError(
            f"--patience {opts.patience} goes by evaluations of the chief, and this cluster has "
            "an evaluator; leave out one"
        )
    configure(opts)
    # Other replicas may wait for long in any call, as the chief saves and evaluates. So only the
    # chief's silence shows that the job hangs.
    leads = member.is_chief or member.role == "evaluator"
    journal = Journal(opts.job_dir, member.name, beats=not leads)
    stop.last = journal.send
    if leads:
        watchdog.watch(journal, stop)
    journal.status("starting", 0)
    description = devices.description(opts.num_gpus)
    journal.event("machine", 0, devices=description, precision=opts.precision)
    if member.is_chief:
        print(f"{member.name} computes in {opts.precision} on {description}")
    if member.role == "evaluator":
        return follow(opts, manifest, journal, stop)
    with stop.at_once():
        on_gpus = opts.num_gpus != 0 and bool(tf.config.list_physical_devices("GPU"))
        place = placement.choose(
            manifest,
            data_dir=opts.data_dir,
            budget_bytes=placement.budget(member.readers_here, on_gpus),
            wish=opts.reader,
            cache_dir=opts.cache_dir,
        )
        if member.is_chief:
            print(place)
        if member.role != "ps":  # Parameter servers read no data.
            place = placement.provide_files(place, manifest, journal.alive)
        channel = control_channel.join(member, job=opts.job_dir, timeout_s=_START_TIMEOUT_S)
    if opts.strategy == "parameter_server" and not member.is_chief:
        journal.status("serving", 0)
        strategy.serve(member, stop, channel)
    with strategy.naming_lost_replicas(member):
        return main_loop(opts, member, manifest, place, journal, stop, channel)


def configure(opts: Options) -> None:
    """Sets numbers of threads, determinism, precision and random seed as the options say.

    It must be called before TensorFlow's first operation.
    """
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
    """Trains from the newest checkpoint to the last step, evaluates and exports.

    The chief writes `job.json`, checkpoints and, if the job is done, the exported model and
    `DONE.json` into the job directory; the others wait for it at the end.

    Returns:
      The exit code: 0, or `saved_code()` after a stop request.

    Raises:
      UserError: If options, model, dataset or machine do not fit each other, or training diverges.
      OSError: If checkpoints or the export cannot be written or read.
      ConnectionError: If the chief has ended too early, or a store does not answer.
      tf.errors.OpError: If another replica is lost.
    """
    started = time.time()
    is_chief, synchronous = member.is_chief, opts.strategy != "parameter_server"
    # Before the first step there is nothing to save, so a stop request ends the process at once.
    # But synchronous replicas have to leave together, as otherwise the others would hang.
    with contextlib.nullcontext() if synchronous and member.addresses else stop.at_once():
        distribution = strategy.create(
            opts.strategy, member, num_gpus=opts.num_gpus, all_reduce=opts.all_reduce
        )
        build = opts.builder(manifest)
        replicas = distribution.num_replicas_in_sync if synchronous else 1
        workers = replicas if synchronous else len(member.addresses["worker"])
        size = learning.training_size(opts, manifest, identity.first_start(opts.job_dir), replicas)
        if is_chief:
            model_check.run(build, opts, manifest)
        with distribution.scope():
            model = build()
            _check_against_first_start(opts, member, manifest, size, model)
            if replicas > 1:
                _synchronize(opts, model, is_chief)
            optimizer = learning.optimizer(opts, model, manifest, size)
        state = State(model, optimizer)
        checkpoints = Checkpoints(
            opts.job_dir,
            state,
            journal if is_chief else None,
            keep=opts.keep_checkpoints,
            every_steps=opts.checkpoint_num_steps,
            every_s=opts.checkpoint_secs,
        )
        first_step = _restore(opts, checkpoints, manifest, journal, is_chief)
        if member.addresses and synchronous:
            _compare_starts(opts, member, channel, distribution, first_step, model)
        scores, validator = Scores(opts.job_dir, build.task), None
        if manifest.splits[SPLIT].examples and not has_evaluator():
            together = distribution if synchronous else tf.distribute.get_strategy()
            validator = Validator(
                opts, build, manifest, scores, journal, together, reports=is_chief
            )
        if is_chief:
            print(
                f"{opts.model} on {manifest.name}: {size.examples} examples, batch {size.batch}, "
                f"{model.count_params()} parameters; {opts.strategy}, training replicas: "
                f"{workers}; from step {first_step} to {size.last_step}"
            )
            if (
                size.horizon < size.last_step
                and learning.settings(opts, size)["horizon_steps"] != "none"
            ):
                print(
                    f"the learning rate is 0 from step {size.horizon} on, where this job's "
                    f"schedule ends; for {size.last_step} steps of learning begin another job"
                )
            _note_records(opts, manifest)
        reader = open_reader(
            place,
            manifest,
            global_batch=size.batch,
            seed=opts.seed,
            prepare=weighted(build.prepare, manifest, opts.class_weights),
            augment=learning.settings(opts, size)["augment"],
        )
        weight_decay, decayed = learning.decay(opts, model)
        train_step = TrainStep(
            model=model,
            optimizer=optimizer,
            task=build.task,
            label=manifest.label,
            global_batch=size.batch,
            seed=opts.seed,
            weight_decay=weight_decay,
            decayed=decayed,
            jit_compile=opts.jit_compile,
        )
        steps: SyncSteps | AsyncSteps
        if synchronous:
            steps = SyncSteps(distribution, train_step, reader, is_chief, first_step)
        else:
            strategy.count_exactly(optimizer)
            coordinator = tf.distribute.coordinator.ClusterCoordinator(distribution)
            steps = AsyncSteps(coordinator, train_step, reader, workers=workers)

    def is_stop_requested() -> bool:
        return stop.requested or channel.received(STOP)

    meter = Meter(size, build.task, journal, optimizer, is_chief)
    journal.status("training", first_step)
    step, is_done = _train(
        opts, steps, checkpoints, scores, validator, meter, first_step, is_stop_requested
    )
    if is_done:
        # All is saved. If the process ends here, a resumed job does the rest again.
        with stop.at_once(lambda: channel.send(LEFT)):
            if not is_chief:
                is_done = channel.wait_for_end()
            else:
                if has_evaluator() and manifest.splits[SPLIT].examples:
                    await_evaluator(opts, scores, step, journal)
                exported_step = _select_weights(opts, scores, state, step)
                journal.status("exporting", step)
                learnt = TrainedOn.load(opts.job_dir)
                export(
                    state.weights(), build, manifest, os.path.join(opts.job_dir, "model"), learnt
                )
                journal.event("export", step, exported_step=exported_step)
                # An attempt that only exports has made no
                # step, so the last one in the journal counts.
                final = (
                    meter.final() if step > first_step else last(opts.job_dir, journal.name, "step")
                )
                done.Done(
                    step=step,
                    epochs=step * size.batch / size.examples,
                    exported_step=exported_step,
                    seconds=round(time.time() - started, 2),
                    validation=scores.load(),
                    stopped_early=opts.patience if step < size.last_step else None,
                    loss=final.get("loss"),
                    examples_per_s=final.get("examples_per_s"),
                    **{name: final.get(name) for name in build.task.metric_names},
                ).save(opts.job_dir)
                channel.send(DONE)
    if is_done:
        journal.event("done", step, steps=step - first_step)
        journal.status("done", step)
    else:
        journal.event("preempted", step)
        channel.send(LEFT)
        if is_chief:
            print(f"told to stop; saved at step {step}")
    if not is_chief:
        channel.wait_for_end()
    elif synchronous:  # Parameter servers and their workers run until they are ended.
        channel.wait_for_others()
    return 0 if is_done else saved_code()


def _train(
    opts: Options,
    steps: SyncSteps | AsyncSteps,
    checkpoints: Checkpoints,
    scores: Scores,
    validator: Validator | None,
    meter: Meter,
    first_step: int,
    is_stop_requested: Callable[[], bool],
) -> tuple[int, bool]:
    """Trains, evaluates and saves until the last step, a stop request, or the end of patience.

    Returns:
      The step at which it ends, whose state is saved, and True unless a stop request has ended
      training or interrupted the last evaluation.

    Raises:
      UserError: If the loss is not finite, or data of the evaluation cannot be used.
      OSError: If a checkpoint cannot be saved, or a store does not answer.
    """
    last_step = meter.size.last_step

    def evaluate(step: int) -> bool:
        checkpoints.copy_state(step)
        return not validator or validator.evaluate(checkpoints.state, is_stop_requested)

    def is_training_enough(step: int) -> bool:
        return opts.patience is not None and steps.agree(
            meter.is_chief and scores.is_exhausted(step, opts.patience)
        )

    step, is_stopping = first_step, False
    is_enough = is_training_enough(step)
    while step < last_step and not (is_stopping or is_enough):
        wish = is_stop_requested()
        # Calls end at the next step at which something may be due. It is the same on all replicas,
        # so that they make equal calls.
        dues = [
            step - step % every + every
            for every in (opts.eval_every_steps, opts.checkpoint_num_steps)
            if every
        ]
        until = min([last_step, *dues])
        window = steps.run(step, until, stop=wish, drain=wish or checkpoints.is_late)
        step += window.steps
        meter.add(step, window)
        if not math.isfinite(loss := window.sums[0]):
            raise UserError(
                f"the loss is {loss} at step {step}: training diverged; lower --learning-rate"
            )
        is_stopping = window.stop and steps.idle
        ends = is_stopping or step >= last_step
        if steps.idle and not ends and opts.eval_every_steps and step % opts.eval_every_steps == 0:
            if validator:
                evaluate(step)
            ends = is_enough = is_training_enough(step)
        if ends or (steps.idle and checkpoints.is_due(step)):
            checkpoints.save(step)
    checkpoints.wait()
    # The last evaluation comes when the state is safe. It is also made if an earlier attempt has
    # trained to the end without it.
    is_scored = not validator or (scores.latest_step == step and (is_enough or step == first_step))
    return step, not is_stopping and (is_scored or evaluate(step))


def _select_weights(opts: Options, scores: Scores, state: State, step: int) -> int:
    """Makes `state` hold the weights to export, the last or the best, and returns their step.

    The last ones are also taken if the best are to be exported and no score was finite.

    Raises:
      UserError: If the files of the best state cannot be used.
      ConnectionError: If a store does not answer.
    """
    if opts.export == "best":
        if "best" in scores.load():
            return scores.restore_best(state)
        print(f"--export best: no evaluation had a finite score; step {step} is exported")
    state.take(step)
    return step


def _check_against_first_start(
    opts: Options, member: Member, manifest: Manifest, size: TrainingSize, model: keras.Model
) -> None:
    """Checks that settings and model are those of the job's first start; the chief records these.

    Settings are all options that decide what is learnt, with their defaults filled in, but for the
    batch size, the schedule's length and the precision.

    Raises:
      UserError: If they differ, or the record `job.json` cannot be used.
      OSError: If it cannot be written, or a store does not answer.
    """
    record = {
        "identity": opts.facts(manifest),
        "batch_size": size.batch,
        "horizon_steps": size.horizon,
        "settings": learning.settings(opts, size),
        "replicas": {role: len(hosts) for role, hosts in member.addresses.items()} or {"chief": 1},
        # Jobs that begin with these weights check how the data were split.
        "arguments": dict(manifest.arguments),
        "network": weights.digest(model),
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
        },
    }
    before = identity.begin(opts.job_dir, record, write=member.is_chief)
    if before["network"] != record["network"]:
        raise UserError(
            f"--model {opts.model} has other weights, vocabularies or statistics than when "
            f"{opts.job_dir} began, or its weights in another order; use what it was, or another "
            "--job-dir"
        )


def _synchronize(opts: Options, model: keras.Model, is_chief: bool) -> None:
    """Makes the model's batch normalisation use the moments of the batch over all replicas.

    Raises:
      UserError: If XLA is to compile a model with such layers, as it cannot exchange their sums.
    """
    if (layers := synchronize(model)) and is_chief:
        print(
            f"--model {opts.model}: {layers} layers of keras.layers.BatchNormalization go by the "
            "whole batch here, as with synchronized=True"
        )
    if opts.jit_compile and exchanges(model):
        raise UserError(
            f"--jit-compile: the batch normalisation of --model {opts.model} exchanges sums with "
            "other replicas, which XLA does not compile; leave it out, or train on one device"
        )


def _restore(
    opts: Options, checkpoints: Checkpoints, manifest: Manifest, journal: Journal, is_chief: bool
) -> int:
    """Loads the newest checkpoint or, at the start of a job, the weights of `--init-from`.

    Returns:
      The step to begin at.

    Raises:
      UserError: If the job was done and its checkpoints are gone; or if the weights of
        `--init-from` cannot be read, do not fit, or have learnt from validation data of this job.
      OSError: If there are checkpoints and none can be read, or a store does not answer.
    """
    step = checkpoints.restore()
    if not step and (record := done.load(opts.job_dir)):
        raise UserError(
            f"{opts.job_dir} was done at step {record.step}, and its checkpoints are gone; put "
            "them back, or use another --job-dir"
        )
    if opts.init_from and not step:
        warm_start.check_unseen(opts.init_from, manifest)
        note = warm_start.take(opts.init_from, checkpoints.state.model)
        if is_chief:
            print(f"--init-from {opts.init_from}: {note}")
    journal.event("resume" if step else "start", step)
    return step


def _compare_starts(
    opts: Options,
    member: Member,
    channel: ControlChannel,
    distribution: tf.distribute.Strategy,
    first_step: int,
    model: keras.Model,
) -> None:
    """Ends a job whose replicas have loaded different checkpoints or built different models.

    Every replica must call it.

    Raises:
      OSError: On all replicas, if they differ.
    """
    names = [*member.everyone]
    own = [[names.index(member.name), first_step, int(weights.digest(model)[:8], 16)]]
    gathered = distribution.gather(
        distribution.run(tf.function(lambda: tf.constant(own, tf.int64))), axis=0
    )
    starts = {names[i]: f"step {step} of model {model:08x}" for i, step, model in gathered.numpy()}
    if len({*starts.values()}) > 1:
        if member.is_chief:
            channel.wait_for_others()  # They may still fetch what was gathered.
        raise OSError(
            "replicas would start differently "
            f"({', '.join(f'{name}: {start}' for name, start in starts.items())}); give all the "
            f"same program, and a --job-dir of which they read the same files: {opts.job_dir}"
        )


def _note_records(opts: Options, manifest: Manifest) -> None:
    """Writes `trained_on.npz`, if the job has none yet: `--init-from` may be gone at the export.

    The file has hashes of the records that the job learns from, and of those that the weights of
    `--init-from` have learnt from.

    Raises:
      UserError: If a file of hashes, or the list of records of `--init-from`, cannot be used.
      OSError: If the list cannot be written, or a store does not answer.
    """
    if TrainedOn.load(opts.job_dir) is None:
        own = TrainedOn.of(manifest, content_hashes(manifest, opts.data_dir, "train"))
        own.and_before(warm_start.learnt_from(opts.init_from) if opts.init_from else None).save(
            opts.job_dir
        )

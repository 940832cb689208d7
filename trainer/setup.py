"""Sets up a replica's training: strategy, model, optimizer and state, restored at the step that the job has reached."""

import dataclasses
import platform

import keras
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest
from common.provenance import TrainedOn
from trainer import learning, model_check, warm_start
from trainer.cluster import strategy
from trainer.cluster.control_channel import ControlChannel
from trainer.cluster.member import Member
from trainer.data.shards import content_hashes
from trainer.evaluation import SPLIT, Scores, Validator
from trainer.evaluator import has_evaluator
from trainer.job import done, identity
from trainer.job.checkpoints import Checkpoints
from trainer.job.journal import Journal
from trainer.job.state import State
from trainer.learning import TrainingSize
from trainer.meter import Meter
from trainer.models.registry import Builder
from trainer.nn import weights
from trainer.nn.layers import exchanges, synchronize
from trainer.options import Options


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """A replica that is ready for its first step."""

    strategy: tf.distribute.Strategy
    label: str  # name of its column
    build: Builder
    size: TrainingSize
    state: State
    checkpoints: Checkpoints
    scores: Scores
    validator: Validator | None  # of a replica that evaluates: all who step together, or the chief of the others
    meter: Meter
    first_step: int
    learnt_records: TrainedOn | None  # of the chief: the records that the model will have learnt from


def prepare(opts: Options, member: Member, manifest: Manifest, journal: Journal, channel: ControlChannel) -> Setup:
    """Builds the model, and restores the newest checkpoint into it."""
    synchronous = opts.strategy != "parameter_server"
    distribution = strategy.create(opts.strategy, member, num_gpus=opts.num_gpus, all_reduce=opts.all_reduce)
    build = opts.builder(manifest)
    replicas = distribution.num_replicas_in_sync if synchronous else 1
    size = learning.training_size(opts, manifest, identity.first_start(opts.job_dir), replicas)
    if member.is_chief:
        model_check.run(build, opts, manifest)
    with distribution.scope():
        model = build()
        check_against_first_start(opts, member, manifest, size, model)
        if replicas > 1:
            _synchronize(opts, model, member.is_chief)
        optimizer = learning.optimizer(opts, model, manifest, size)
    state = State(model, optimizer)
    checkpoints = Checkpoints(
        opts.job_dir,
        state,
        journal if member.is_chief else None,
        keep=opts.keep_checkpoints,
        every_steps=opts.checkpoint_num_steps,
        every_s=opts.checkpoint_secs,
    )
    first_step = _restore(opts, checkpoints, model, manifest, journal, member.is_chief)
    if member.addresses and synchronous:
        _compare_starts(member, channel, distribution, first_step, model, opts.job_dir)
    scores, validator = Scores(opts.job_dir, build.task), None
    if manifest.splits[SPLIT].examples and not has_evaluator():
        validator = Validator(
            build,
            manifest,
            scores,
            journal,
            data_dir=opts.data_dir,
            batch_size=opts.eval_batch_size,
            together=distribution if synchronous else None,
            reports=member.is_chief,
        )
    if member.is_chief:
        trained_by = replicas if synchronous else len(member.addresses["worker"])
        _announce(opts, manifest, size, first_step, model.count_params(), trained_by)
    return Setup(
        strategy=distribution,
        label=manifest.label,
        build=build,
        size=size,
        state=state,
        checkpoints=checkpoints,
        scores=scores,
        validator=validator,
        meter=Meter(size, build.task, journal, optimizer, member.is_chief),
        first_step=first_step,
        learnt_records=_learnt_records(opts, manifest) if member.is_chief else None,
    )


def check_against_first_start(
    opts: Options, member: Member, manifest: Manifest, size: TrainingSize, model: keras.Model
) -> None:
    """Refuses settings and a model that are not those of the job's first start, which the chief writes down."""
    record = {
        "identity": opts.facts(manifest),
        "batch_size": size.batch,
        "horizon_steps": size.horizon,
        "settings": learning.settings(opts, batch_size=size.batch, horizon_steps=size.horizon),
        "replicas": {role: len(hosts) for role, hosts in member.addresses.items()} or {"chief": 1},
        "arguments": dict(manifest.arguments),  # for jobs that begin with these weights
        "network": weights.digest(model),
        "versions": {"python": platform.python_version(), "tensorflow": tf.__version__, "keras": keras.__version__},
    }
    before = identity.begin(opts.job_dir, record, write=member.is_chief)
    if before["network"] != record["network"]:
        raise UserError(
            f"--model {opts.model} has other weights, vocabularies or statistics than when {opts.job_dir} began, or its "
            "weights in another order; use what it was, or another --job-dir"
        )


def _synchronize(opts: Options, model: keras.Model, is_chief: bool) -> None:
    """Makes the model's batch normalisation go by the batch of all replicas."""
    if (layers := synchronize(model)) and is_chief:
        print(
            f"--model {opts.model}: {layers} layers of keras.layers.BatchNormalization go by the whole batch here, as "
            "with synchronized=True",
            flush=True,
        )
    if opts.jit_compile and exchanges(model):
        raise UserError(
            f"--jit-compile: the batch normalisation of --model {opts.model} exchanges sums with other replicas, which XLA "
            "does not compile; leave it out, or train on one device"
        )


def _restore(
    opts: Options, checkpoints: Checkpoints, model: keras.Model, manifest: Manifest, journal: Journal, is_chief: bool
) -> int:
    """Loads the newest checkpoint, or at the start of a job the weights of `--init-from`. Returns the step."""
    step = checkpoints.restore()
    if not step and (record := done.load(opts.job_dir)):
        raise UserError(
            f"{opts.job_dir} was done at step {record.step}, and its checkpoints are gone; put them back, or use "
            "another --job-dir"
        )
    notes = {}
    if opts.init_from and not step:
        warm_start.check_unseen(opts.init_from, manifest)
        notes = {"init_from": warm_start.take(opts.init_from, model)}
        if is_chief:
            print(f"--init-from {opts.init_from}: {notes['init_from']}", flush=True)
    journal.event(
        "resume" if step else "start",
        step,
        data_dir=opts.data_dir,
        fingerprint=manifest.fingerprint,
        options=opts.identity(),
        **notes,
    )
    return step


def _compare_starts(
    member: Member,
    channel: ControlChannel,
    distribution: tf.distribute.Strategy,
    first_step: int,
    model: keras.Model,
    job_dir: str,
) -> None:
    """Ends a job whose replicas have read different checkpoints, or have built different models."""
    names = [*member.everyone]
    own = [[names.index(member.name), first_step, int(weights.digest(model)[:8], 16)]]
    gathered = distribution.gather(distribution.run(tf.function(lambda: tf.constant(own, tf.int64))), axis=0)
    starts = {names[i]: f"step {step} of model {model:08x}" for i, step, model in gathered.numpy()}
    if len({*starts.values()}) > 1:
        if member.is_chief:
            channel.wait_for_others()  # which may still gather
        raise OSError(
            f"replicas would start differently ({', '.join(f'{name}: {start}' for name, start in starts.items())}); give "
            f"all the same program, and a --job-dir of which they read the same files: {job_dir}"
        )


def _learnt_records(opts: Options, manifest: Manifest) -> TrainedOn:
    """Returns the records that the job learns from, written down once; `--init-from` may be gone when it exports."""
    records = TrainedOn.load(opts.job_dir)
    if records is None:
        own = TrainedOn.of(manifest, content_hashes(manifest, opts.data_dir, "train"))
        records = own.and_before(warm_start.learnt_from(opts.init_from) if opts.init_from else None)
        records.save(opts.job_dir)
    return records


def _announce(
    opts: Options, manifest: Manifest, size: TrainingSize, first_step: int, parameters: int, replicas: int
) -> None:
    print(
        f"{opts.model} on {manifest.name}: {size.examples} examples, batch {size.batch}, {parameters} parameters; "
        f"{opts.strategy}, training replicas: {replicas}; from step {first_step} to {size.last_step}",
        flush=True,
    )
    if size.horizon < size.last_step and learning.falls(opts):
        print(
            f"the learning rate is 0 from step {size.horizon} on, where this job's schedule ends; for "
            f"{size.last_step} steps of learning begin another job",
            flush=True,
        )

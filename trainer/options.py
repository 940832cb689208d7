"""The trainer's flags.

One command line serves every replica; what differs between replicas comes from the environment (`trainer.replicas.member`).
A new flag goes into `Options` and `parser`, and either into `CHANGEABLE` or it becomes part of the job's identity.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Mapping, Sequence

from trainer.base.errors import Parser, UserError
from trainer.base.flags import at_least, not_negative, positive, share
from trainer.nn import models

STRATEGIES = ("one_device", "mirrored", "multi_worker_mirrored", "parameter_server")
OPTIMIZERS = ("adam", "sgd")
PRECISIONS = ("float32", "bfloat16")
SCHEDULES = ("constant", "piecewise", "linear", "cosine")
AUGMENTATIONS = ("none", "crop_flip", "resized_crop_flip")
READERS = ("auto", "resident", "mapped", "streaming")
# What a resumed job may change; all other options decide what is learnt and are refused when they differ.
CHANGEABLE = frozenset(
    {
        *(
            "data_dir",
            "job_dir",
            "reader",
            "reader_memory_gb",
            "cache_dir",
            "sync",
            "train_steps",
            "train_epochs",
            "num_gpus",
            "logical_cpus",
            "threads",
            "all_reduce",
        ),
        *("checkpoint_num_steps", "checkpoint_secs", "keep_checkpoints", "eval_every_steps", "eval_batch_size"),
        *("export", "start_timeout_s", "evaluator_timeout_s"),
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What to train and how; `--help` says what each field means."""

    data_dir: str
    job_dir: str
    model: str | None
    train_steps: int | None
    train_epochs: float | None
    batch_size: int | None
    per_replica_batch_size: int | None
    seed: int
    deterministic: bool
    num_layers: int | None
    batch_norm_decay: float | None
    batch_norm_epsilon: float | None
    batch_norm_statistics: str | None
    hidden_units: tuple[int, ...] | None
    dropout: float | None
    optimizer: str | None
    learning_rate: float | None
    momentum: float | None
    weight_decay: float | None
    weight_decay_on: str
    schedule: str | None
    boundaries_epochs: tuple[float, ...] | None
    factors: tuple[float, ...] | None
    horizon_steps: int | None
    warmup_steps: int
    augment: str | None
    precision: str
    eval_every_steps: int
    eval_batch_size: int
    export: str
    reader: str
    reader_memory_gb: float | None
    cache_dir: str | None
    checkpoint_num_steps: int
    checkpoint_secs: float
    keep_checkpoints: int
    strategy: str | None
    sync: bool
    num_gpus: int | None
    logical_cpus: int
    all_reduce: str
    threads: int
    start_timeout_s: float
    evaluator_timeout_s: float

    def __post_init__(self) -> None:
        """Refuses what argparse cannot."""
        if (self.train_steps is None) == (self.train_epochs is None):
            raise UserError("give either --train-steps or --train-epochs")
        if self.batch_size and self.per_replica_batch_size:
            raise UserError("give --batch-size (the whole job's) or --per-replica-batch-size, not both")
        if (self.boundaries_epochs is None) != (self.factors is None):
            raise UserError("--boundaries-epochs and --factors belong together")
        if self.factors and len(self.factors) != len(self.boundaries_epochs) + 1:
            raise UserError(
                f"--factors: {len(self.factors)} given for {len(self.boundaries_epochs)} boundaries; one more is needed"
            )
        if self.boundaries_epochs and list(self.boundaries_epochs) != sorted(set(self.boundaries_epochs)):
            raise UserError(f"--boundaries-epochs {','.join(map(str, self.boundaries_epochs))} do not rise")
        if self.logical_cpus > 1 and self.strategy not in (None, "mirrored"):
            raise UserError(f"--logical-cpus {self.logical_cpus} is for --strategy mirrored")

    def global_batch_size(self, replicas: int) -> int:
        """Examples of one step over `replicas` synchronous replicas (1 in a parameter-server job)."""
        if self.per_replica_batch_size:
            return self.per_replica_batch_size * replicas
        return self.batch_size or 128

    def last_step(self, examples: int, replicas: int) -> int:
        """The global step to reach, with `examples` in the training split."""
        if self.train_steps is not None:
            return self.train_steps
        return math.ceil(self.train_epochs * examples / self.global_batch_size(replicas))

    def identity(self) -> dict[str, object]:
        """The options that decide what is learnt. Synchronous strategies learn the same, whatever their replicas."""
        options = {k: v for k, v in dataclasses.asdict(self).items() if k not in CHANGEABLE}
        return {**options, "strategy": "asynchronous" if self.strategy == "parameter_server" else "synchronous"}


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(positive, text.split(",")))


def _units(text: str) -> tuple[int, ...]:
    return tuple(map(at_least(1), text.split(",")))


def parser() -> Parser:
    """The parser; its help groups the flags and names units and defaults."""
    p = Parser(
        prog="trainer.task",
        description="Trains a model on a converted dataset. Every replica runs this with the same flags; its role "
        "comes from TF_CONFIG. The same --job-dir resumes.",
    )
    job = p.add_argument_group("job").add_argument
    job("--data-dir", required=True, metavar="DIR", help="a dataset made by components.convert")
    job("--job-dir", required=True, metavar="DIR", help="checkpoints, logs, journal and model; the same one resumes")
    job(
        "--model",
        help=f"{', '.join(models.NAMES)}, or package.module:function of your own (default: cnn for images, wide_deep for "
        "a table)",
    )
    job("--train-steps", type=at_least(1), metavar="N", help="absolute global step to reach")
    job("--train-epochs", type=positive, metavar="N", help="the same in passes over the training split")
    job("--seed", type=at_least(0), default=0, help="of initial weights, sample order, augmentation and dropout")
    job("--deterministic", action="store_true", help="the same bits in every run; a little slower")
    batch = p.add_argument_group("batches").add_argument
    batch("--batch-size", type=at_least(1), metavar="N", help="examples of a step over all replicas (default: 128)")
    batch(
        "--per-replica-batch-size",
        "--train-batch-size",
        type=at_least(1),
        metavar="N",
        help="examples of a step on each replica, instead of --batch-size",
    )
    network = p.add_argument_group(
        "network", "For models that have such a thing; default: the model's own."
    ).add_argument
    network("--num-layers", type=at_least(1), metavar="N", help="of a resnet: 6n + 2")
    network("--batch-norm-decay", type=share, metavar="X", help="of the moving statistics, each step")
    network("--batch-norm-epsilon", type=positive, metavar="X", help="added to variances")
    network(
        "--batch-norm-statistics",
        choices=("synchronized", "local"),
        help="of the whole batch, the same with any number of replicas; or of each replica's part, which is faster",
    )
    network(
        "--hidden-units", type=_units, metavar="N,N", help="layers of the deep part of wide_deep, such as 128,64,32"
    )
    network("--dropout", type=share, metavar="X", help="share of the values that training drops behind each of these")
    learn = p.add_argument_group("learning", "Default, where none is named: the model's own.").add_argument
    learn("--optimizer", choices=OPTIMIZERS, help="how gradients become updates")
    learn("--learning-rate", type=positive, metavar="X", help="what the schedule multiplies")
    learn("--momentum", type=share, metavar="X", help="of --optimizer sgd (default: 0.9)")
    learn("--weight-decay", type=not_negative, metavar="X", help="times half the squared weights, added to the loss")
    learn("--weight-decay-on", choices=("kernels", "all"), default="kernels", help="which weights decay")
    learn("--schedule", choices=SCHEDULES, help="of the learning rate")
    learn("--boundaries-epochs", type=_numbers, metavar="X,X", help="of piecewise: epochs of data seen, such as 82,123")
    learn("--factors", type=_numbers, metavar="X,X", help="of piecewise: before, between and after the boundaries")
    learn(
        "--horizon-steps",
        type=at_least(1),
        metavar="N",
        help="global step at which linear and cosine reach 0 (default: the last step asked for at the first start)",
    )
    learn("--warmup-steps", type=at_least(0), default=0, metavar="N", help="over which the rate rises linearly")
    learn(
        "--augment",
        choices=AUGMENTATIONS,
        help="of training images: crop_flip pads by 4 pixels, crops, mirrors; resized_crop_flip takes a part of 8 to 100 %% "
        "of the area, resizes, mirrors",
    )
    learn("--precision", choices=PRECISIONS, default="float32", help="of the computation; weights stay float32")
    read = p.add_argument_group(
        "reader", "how training data is read; the order of samples is the same in all"
    ).add_argument
    read(
        "--reader",
        choices=READERS,
        default="auto",
        help="resident: all in memory; mapped: files on a local disk; streaming: in large pieces from wherever the files "
        "are; auto: the first of these that there is room for",
    )
    read(
        "--reader-memory-gb",
        type=positive,
        metavar="GB",
        help="of each replica (default: half of what is available, shared by the replicas of a machine)",
    )
    read(
        "--cache-dir",
        metavar="DIR",
        help="local directory to which mapped files are copied first (default: only files of a bucket, to a temporary "
        "directory)",
    )
    judge = p.add_argument_group("validation").add_argument
    judge(
        "--eval-every-steps",
        type=at_least(0),
        default=0,
        metavar="N",
        help="steps between evaluations by the chief, which also evaluates at the end; 0: only then. A cluster's "
        "evaluator scores checkpoints instead",
    )
    judge("--eval-batch-size", type=at_least(1), default=500, metavar="N", help="examples evaluated at a time")
    judge("--export", choices=("last", "best"), default="last", help="weights to export; best on the validation split")
    judge(
        "--evaluator-timeout-s",
        type=positive,
        default=300.0,
        metavar="SECONDS",
        help="that the chief waits at the end for the evaluator",
    )
    save = p.add_argument_group("checkpoints").add_argument
    save(
        "--checkpoint-num-steps",
        type=at_least(0),
        default=500,
        metavar="N",
        help="steps between checkpoints; 0: none by steps",
    )
    save(
        "--checkpoint-secs",
        type=not_negative,
        default=0.0,
        metavar="SECONDS",
        help="between checkpoints; 0: none by time",
    )
    save("--keep-checkpoints", type=at_least(1), default=3, metavar="N", help="newest checkpoints to keep")
    machine = p.add_argument_group("machine").add_argument
    machine("--strategy", choices=STRATEGIES, help="how replicas work together (default: by the cluster's shape)")
    machine(
        "--sync",
        action="store_true",
        help="all-reduce over chief and workers even if the cluster has parameter servers, which then end at once",
    )
    machine("--num-gpus", type=at_least(0), metavar="N", help="GPUs of this replica (default: all there are)")
    machine("--logical-cpus", type=at_least(1), default=1, metavar="N", help="replicas of mirrored without GPUs")
    machine("--all-reduce", choices=("auto", "ring", "nccl"), default="auto", help="how workers add gradients up")
    machine(
        "--threads",
        type=at_least(0),
        default=0,
        metavar="N",
        help="of this replica; 0: as many as the launcher says in TRAINER_THREADS, or else all cores",
    )
    machine(
        "--start-timeout-s",
        type=positive,
        default=600.0,
        metavar="SECONDS",
        help="that replicas wait for each other at the start",
    )
    return p


def parse(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Options:
    """Options from a command line; `--train_steps` is understood as `--train-steps`, as older programs wrote it."""
    argv = [re.sub(r"^--[\w-]+", lambda m: m[0].replace("_", "-"), a) for a in argv]
    values = vars(parser().parse_args(argv))
    values["threads"] = values["threads"] or int(environ.get("TRAINER_THREADS") or 0)
    if values["model"]:
        models.check_name(values["model"])
    return Options(**values)

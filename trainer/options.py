"""The trainer's flags.

One command line serves every replica; what differs between replicas comes from the environment (`trainer.cluster`).
A new flag goes into `Options` and `parser`, and either into `CHANGEABLE` or it becomes part of the job's identity.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import re
from collections.abc import Mapping, Sequence

from trainer import models
from trainer.errors import Parser, UserError

STRATEGIES = ("one_device", "mirrored", "multi_worker_mirrored", "parameter_server")
OPTIMIZERS = ("adam", "sgd")
PRECISIONS = ("float32", "bfloat16")
SCHEDULES = ("constant", "piecewise", "linear", "cosine")
AUGMENTATIONS = ("none", "crop_flip")
# What a resumed job may change; all other options decide what is learnt and are refused when they differ.
CHANGEABLE = frozenset(
    {
        *("data_dir", "job_dir", "train_steps", "train_epochs", "num_gpus", "logical_cpus", "threads", "all_reduce"),
        *("checkpoint_num_steps", "checkpoint_secs", "keep_checkpoints", "eval_every_steps", "eval_batch_size"),
        *("export", "start_timeout_s", "evaluator_timeout_s"),
    }
)
_MOMENTUM = 0.9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What to train and how; `--help` says what each field means."""

    data_dir: str
    job_dir: str
    model: str
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
    optimizer: str | None
    learning_rate: float | None
    momentum: float
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
    checkpoint_num_steps: int
    checkpoint_secs: float
    keep_checkpoints: int
    strategy: str | None
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
        if self.optimizer == "adam" and self.momentum != _MOMENTUM:
            raise UserError("--momentum belongs to --optimizer sgd")
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
        """The options that decide what is learnt."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in CHANGEABLE}


def _at_least(least: int, kind: type = int):
    def parse(text: str):
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text} is not at least {least}")
        return value

    parse.__name__ = kind.__name__  # argparse names it when the text is no number at all
    return parse


def _positive(text: str) -> float:
    if not (value := float(text)) > 0 or math.isinf(value):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _share(text: str) -> float:
    if not 0 <= (value := float(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 0 and less than 1")
    return value


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(_positive(part) for part in text.split(","))


def parser() -> Parser:
    """The parser; its help groups the flags and names units and defaults."""
    p = Parser(
        prog="trainer.task",
        description="Trains a model on a converted dataset. Every replica runs this with the same flags; its role "
        "comes from TF_CONFIG. The same --job-dir resumes.",
    )
    job = p.add_argument_group("job").add_argument
    job("--data-dir", required=True, help="a dataset made by components.convert")
    job("--job-dir", required=True, help="checkpoints, logs, journal and model; the same directory resumes")
    job("--model", default=models.NAMES[0], help=f"{', '.join(models.NAMES)}, or package.module:function of your own")
    job("--train-steps", type=_at_least(1), help="absolute global step to reach")
    job("--train-epochs", type=_positive, help="the same in passes over the training split")
    job("--seed", type=_at_least(0), default=0, help="of initial weights, sample order, augmentation and dropout")
    job("--deterministic", action="store_true", help="the same bits in every run; a little slower")
    batch = p.add_argument_group("batches").add_argument
    batch("--batch-size", type=_at_least(1), help="examples of one step over all replicas (None: 128)")
    batch(
        "--per-replica-batch-size",
        "--train-batch-size",
        type=_at_least(1),
        help="examples of one step on each replica, instead of --batch-size",
    )
    network = p.add_argument_group("network", "for models that have such a thing; None: the model's own").add_argument
    network("--num-layers", type=_at_least(1), help="of a resnet: 6n + 2")
    network("--batch-norm-decay", type=_share, help="of the moving statistics, each step")
    network("--batch-norm-epsilon", type=_positive, help="added to variances")
    network(
        "--batch-norm-statistics",
        choices=("synchronized", "local"),
        help="of the whole batch, the same with any number of replicas; or of each replica's part, which is faster",
    )
    learn = p.add_argument_group("learning", "None: the model's own").add_argument
    learn("--optimizer", choices=OPTIMIZERS, help="how gradients become updates")
    learn("--learning-rate", type=_positive, help="before the schedule")
    learn("--momentum", type=_share, default=_MOMENTUM, help="of --optimizer sgd")
    learn("--weight-decay", type=_at_least(0, float), help="times half the squared weights, added to the loss")
    learn("--weight-decay-on", choices=("kernels", "all"), default="kernels", help="which weights decay")
    learn("--schedule", choices=SCHEDULES, help="of the learning rate")
    learn("--boundaries-epochs", type=_numbers, help="of piecewise: epochs of data seen, such as 82,123")
    learn("--factors", type=_numbers, help="of piecewise: one before and one after each boundary, such as 1,0.1,0.01")
    learn(
        "--horizon-steps", type=_at_least(1), help="where linear and cosine reach 0 (None: the first start's last step)"
    )
    learn("--warmup-steps", type=_at_least(0), default=0, help="over which the rate rises from 0")
    learn("--augment", choices=AUGMENTATIONS, help="of training images: crop_flip pads by 4, crops, mirrors")
    learn("--precision", choices=PRECISIONS, default="float32", help="of the computation; weights stay float32")
    judge = p.add_argument_group("validation").add_argument
    judge(
        "--eval-every-steps", type=_at_least(0), default=0, help="steps between evaluations by the chief; 0: at the end"
    )
    judge("--eval-batch-size", type=_at_least(1), default=500, help="examples at a time")
    judge("--export", choices=("last", "best"), default="last", help="weights to export; best on the validation split")
    judge(
        "--evaluator-timeout-s", type=_positive, default=300.0, help="that the chief waits for the evaluator at the end"
    )
    save = p.add_argument_group("checkpoints").add_argument
    save("--checkpoint-num-steps", type=_at_least(0), default=500, help="steps between checkpoints; 0: none by steps")
    save(
        "--checkpoint-secs", type=_at_least(0, float), default=0.0, help="seconds between checkpoints; 0: none by time"
    )
    save("--keep-checkpoints", type=_at_least(1), default=3, help="newest checkpoints to keep")
    machine = p.add_argument_group("machine").add_argument
    machine("--strategy", choices=STRATEGIES, help="how replicas work together (None: from the cluster's shape)")
    machine("--num-gpus", type=_at_least(0), help="GPUs of this replica (None: all there are)")
    machine("--logical-cpus", type=_at_least(1), default=1, help="replicas of --strategy mirrored without GPUs")
    machine("--all-reduce", choices=("auto", "ring", "nccl"), default="auto", help="how workers add gradients up")
    machine("--threads", type=_at_least(0), default=0, help="of this replica; 0: TRAINER_THREADS, else all cores")
    machine("--start-timeout-s", type=_positive, default=600.0, help="that replicas wait for each other at the start")
    return p


def parse(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Options:
    """Options from a command line; `--train_steps` is understood as `--train-steps`, as older programs wrote it."""
    argv = [re.sub(r"^--[\w-]+", lambda m: m[0].replace("_", "-"), a) for a in argv]
    values = vars(parser().parse_args(argv))
    values["threads"] = values["threads"] or int(environ.get("TRAINER_THREADS") or 0)
    models.check_name(values["model"])
    return Options(**values)

"""The trainer's flags.

One command line serves every replica; what differs between replicas comes from the environment (`trainer.cluster`).
A new flag goes into `Options` and `parse`, and either into `CHANGEABLE` or it becomes part of the job's identity.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence

from trainer.errors import Parser, UserError

STRATEGIES = ("one_device", "multi_worker_mirrored", "parameter_server")
OPTIMIZERS = ("adam", "sgd")
# What a resumed job may change; all other options decide what is learnt and are refused when they differ.
CHANGEABLE = frozenset({"data_dir", "job_dir", "train_steps", "checkpoint_num_steps", "keep_checkpoints", "threads"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What to train and how.

    Attributes:
      data_dir: A converted dataset.
      job_dir: Where checkpoints, logs, journal and model go; the same directory resumes.
      model: Name in `trainer.models.MODELS`.
      strategy: Of `STRATEGIES`; None derives it from the shape of the cluster.
      train_steps: Absolute global step to reach.
      batch_size: Examples of one step over all replicas. In a parameter-server job a step is one worker's update, so
        there it is the batch of one worker.
      per_replica_batch_size: Examples of one step on each replica, instead of `batch_size`.
      optimizer: Of `OPTIMIZERS`; None takes the model's.
      learning_rate: None takes the model's.
      momentum: Of `sgd`.
      seed: Of initial weights and sample order.
      deterministic: Ask TensorFlow for ops that give the same bits in every run.
      checkpoint_num_steps: Steps between checkpoints.
      keep_checkpoints: Newest checkpoints to keep.
      threads: Threads of one replica; 0 lets TensorFlow take all cores.
    """

    data_dir: str
    job_dir: str
    model: str
    strategy: str | None
    train_steps: int
    batch_size: int | None
    per_replica_batch_size: int | None
    optimizer: str | None
    learning_rate: float | None
    momentum: float
    seed: int
    deterministic: bool
    checkpoint_num_steps: int
    keep_checkpoints: int
    threads: int

    def __post_init__(self) -> None:
        """Refuses what argparse cannot."""
        if self.batch_size and self.per_replica_batch_size:
            raise UserError("give --batch-size (the whole job's) or --per-replica-batch-size, not both")
        if self.optimizer == "adam" and self.momentum != _MOMENTUM:
            raise UserError("--momentum belongs to --optimizer sgd")

    def global_batch_size(self, replicas: int) -> int:
        """Examples of one step over `replicas` synchronous replicas (1 in a parameter-server job)."""
        if self.per_replica_batch_size:
            return self.per_replica_batch_size * replicas
        return self.batch_size or 128

    def identity(self) -> dict[str, object]:
        """The options that decide what is learnt."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in CHANGEABLE}


_MOMENTUM = 0.9


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def _count(text: str) -> int:
    if (value := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


def _rate(text: str) -> float:
    if not (value := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def parser(models: Sequence[str]) -> Parser:
    """The parser; its help names each flag's default."""
    p = Parser(
        prog="trainer.task",
        description="Trains a model on a converted dataset. Every replica runs this with the same flags; its role "
        "comes from TF_CONFIG. The same --job-dir resumes; --train-steps is the absolute step to reach.",
    )
    p.add_argument("--data-dir", required=True, help="a dataset made by components.convert")
    p.add_argument("--job-dir", required=True, help="checkpoints, logs, journal and model; the same directory resumes")
    p.add_argument("--model", choices=models, default=models[0], help="what to train")
    p.add_argument("--strategy", choices=STRATEGIES, help="how replicas work together (None: from the cluster's shape)")
    p.add_argument("--train-steps", type=_positive, required=True, help="global step to reach")
    p.add_argument("--batch-size", type=_positive, help="examples of one step over all replicas (None: 128)")
    p.add_argument(
        "--per-replica-batch-size",
        "--train-batch-size",
        type=_positive,
        help="examples of one step on each replica, instead of --batch-size",
    )
    p.add_argument("--optimizer", choices=OPTIMIZERS, help="None: the model's own")
    p.add_argument("--learning-rate", type=_rate, help="None: the model's own")
    p.add_argument("--momentum", type=float, default=_MOMENTUM, help="of --optimizer sgd")
    p.add_argument("--seed", type=_count, default=0, help="of initial weights and sample order")
    p.add_argument("--deterministic", action="store_true", help="the same bits in every run (a little slower)")
    p.add_argument("--checkpoint-num-steps", type=_positive, default=500, help="steps between checkpoints")
    p.add_argument("--keep-checkpoints", type=_positive, default=3, help="newest checkpoints to keep")
    p.add_argument(
        "--threads",
        type=_count,
        default=0,
        help="of one replica; 0 takes TRAINER_THREADS of the launcher, else all cores",
    )
    return p


def parse(argv: Sequence[str], models: Sequence[str], environ: Mapping[str, str] = os.environ) -> Options:
    """Options from a command line; `--train_steps` is understood as `--train-steps`, as older programs wrote it."""
    argv = [re.sub(r"^--[\w-]+", lambda m: m[0].replace("_", "-"), a) for a in argv]
    values = vars(parser(models).parse_args(argv))
    values["threads"] = values["threads"] or int(environ.get("TRAINER_THREADS") or 0)
    return Options(**values)

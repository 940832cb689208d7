"""Flags of the trainer.

One command line serves every replica; differences between replicas come from the environment
(`trainer.cluster.member`). A flag is a field of `Options`, and is declared nowhere else.
"""

import dataclasses
import functools
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from common.cli import Flags, Parser, flag
from common.errors import UserError
from common.flags import (
    MOST,
    Kind,
    at_least,
    job_directory,
    not_negative,
    place,
    positive,
    several,
    share,
    variable,
)
from common.manifest import Manifest
from trainer.data import example_weights
from trainer.job.done import Done
from trainer.models import registry

# Groups of the flags that decide what is learnt. A job cannot resume with another value of them.
_LEARNT = ("model", "batches", "network", "learning")
_MOST_THREADS = 1024
_batch_size = at_least(1, 2**24)
_class_weight = Kind(
    str,
    lambda text: "=" in text and positive.holds(float(text.rpartition("=")[2])),
    f"CLASS=WEIGHT with {positive.says}",
    "CLASS=WEIGHT",
)


def _group(name: str) -> Callable[..., Any]:
    """Returns a function that declares a flag under that heading of the help."""
    return functools.partial(flag, group=name)


_job = _group("job")
_model = _group("model")
_batches = _group("batches")
_network = _group("network")
_learning = _group("learning")
_reader = _group("reader")
_validation = _group("validation")
_checkpoints = _group("checkpoints")
_machine = _group("machine")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    """Settings of a training job; `--help` describes each field.

    Options of the group `network` are keywords of the model's `build`, which gets those that are
    not None.
    """

    data_dir: str = _job(
        place, "a dataset made by components.convert", required=True, metavar="DIR"
    )
    job_dir: str = _job(
        job_directory,
        "checkpoints, logs, journal and model; the same one resumes",
        required=True,
        metavar="DIR",
    )
    model: str = _model(
        str,
        f"{', '.join(registry.NAMES)}, or package.module:function of your own (default: cnn for "
        "images, wide_deep for a table)",
        default="",
    )
    model_options: tuple[str, ...] | None = _model(
        str,
        "options of a model of your own: keywords of its function, of its optimizer and of its "
        "task. --width 12 is the same as --model-options width=12",
        metavar="NAME=VALUE",
        several=True,
    )
    init_from: str | None = _model(
        place,
        "weights to begin with, where name and shape fit: a job directory (or its best/), a "
        "version in the registry, a .keras file",
        metavar="PATH",
    )
    train_steps: int | None = _job(at_least(1), "absolute global step to reach")
    train_epochs: float | None = _job(
        positive, "the same in passes over the training split", metavar="N"
    )
    seed: int = _model(
        at_least(0, 2**32 - 1),
        "of initial weights, sample order, augmentation and dropout",
        default=0,
    )
    deterministic: bool = _model(bool, "the same bits in every run; a little slower")

    batch_size: int | None = _batches(
        _batch_size, "examples of a step over all replicas (default: 128)"
    )
    per_replica_batch_size: int | None = _batches(
        _batch_size,
        "examples of a step on each replica, instead of --batch-size",
        "--train-batch-size",
    )
    num_layers: int | None = _network(at_least(1), "of a resnet: 6n + 2")
    batch_norm_decay: float | None = _network(share, "of the moving statistics, each step")
    batch_norm_epsilon: float | None = _network(positive, "added to variances")
    hidden_units: tuple[int, ...] | None = _network(
        several(at_least(1)), "layers of the deep part of wide_deep, such as 128,64,32"
    )
    dropout: float | None = _network(
        share, "share of the values that training drops behind each of these"
    )

    optimizer: str | None = _learning(("adam", "adamw", "sgd"), "how gradients become updates")
    learning_rate: float | None = _learning(positive, "what the schedule multiplies")
    momentum: float | None = _learning(share, "of --optimizer sgd (default: 0.9)")
    clip_norm: float | None = _learning(
        positive,
        "largest norm of all gradients of a step together; longer ones are scaled down (default: "
        "any)",
    )
    weight_decay: float | None = _learning(
        not_negative,
        "times half the squared weights, added to the loss; of adamw: share of a weight that a "
        "rate of 1 takes from it each step (default: the model's own, or 0.004)",
    )
    schedule: str | None = _learning(
        ("constant", "piecewise", "linear", "cosine"), "of the learning rate"
    )
    boundaries_epochs: tuple[float, ...] | None = _learning(
        several(positive), "of piecewise: epochs of data seen, such as 82,123"
    )
    factors: tuple[float, ...] | None = _learning(
        several(positive), "of piecewise: before, between and after the boundaries"
    )
    warmup_steps: int = _learning(at_least(0), "over which the rate rises linearly", default=0)
    augment: str | None = _learning(
        ("none", "crop_flip"), "of training images: crop_flip pads by 4 pixels, crops, mirrors"
    )
    class_weights: tuple[str, ...] | None = _learning(
        several(_class_weight),
        "that multiply the training loss of their examples, such as rare=5 (default: 1 of every "
        "class)",
    )
    precision: str = _learning(
        ("float32", "bfloat16"), "of the computation; weights stay float32", default="float32"
    )
    jit_compile: bool = _learning(
        bool, "compile model, loss and gradients by XLA; the same result but for rounding"
    )

    reader: str = _reader(
        ("auto", "resident", "mapped"),
        "resident: all in memory; mapped: files on a local disk; auto: resident if half of the "
        "memory that is free, shared by the replicas of a machine, is enough",
        default="auto",
    )
    cache_dir: str | None = _reader(
        str,
        "local directory to which training files are copied first (default: only those of a "
        "bucket, to a temporary directory)",
        metavar="DIR",
    )

    eval_every_steps: int = _validation(
        at_least(0),
        "steps between evaluations, of which one is at the end; 0: only that. A cluster's "
        "evaluator scores checkpoints instead",
        default=0,
    )
    eval_batch_size: int = _validation(at_least(1), "examples evaluated at a time", default=500)
    patience: int | None = _validation(
        at_least(1),
        "evaluations of --eval-every-steps, one after the other without a better score, that end "
        "training early",
    )
    export: str = _validation(
        ("last", "best"),
        "weights to export: the last, or those that were best on the validation split",
        default="last",
    )
    checkpoint_num_steps: int = _checkpoints(
        at_least(0), "steps between checkpoints; 0: none by steps", default=500
    )
    checkpoint_secs: float = _checkpoints(
        not_negative, "between checkpoints; 0: none by time", default=60.0, metavar="SECONDS"
    )
    keep_checkpoints: int = _checkpoints(at_least(1), "newest checkpoints to keep", default=3)

    strategy: str = _machine(
        ("one_device", "mirrored", "multi_worker_mirrored", "parameter_server"),
        "how replicas work together (default: by the cluster's shape)",
        default="",
    )
    sync: bool = _machine(
        bool,
        "all-reduce over chief and workers even if the cluster has parameter servers, which then "
        "end at once",
    )
    num_gpus: int | None = _machine(at_least(0), "GPUs of this replica (default: all there are)")
    all_reduce: str = _machine(
        ("auto", "ring", "nccl"), "how workers add gradients up", default="auto"
    )
    threads: int = _machine(
        at_least(0, _MOST_THREADS),
        "of this replica; 0: as many as the launcher says in TRAINER_THREADS, or else all cores",
        default=0,
    )

    def __post_init__(self) -> None:
        """Checks the flags, alone and together.

        Raises:
          UserError: If a value is not allowed, or flags contradict each other.
        """
        super().__post_init__()
        if (self.train_steps is None) == (self.train_epochs is None):
            raise UserError("give either --train-steps or --train-epochs")
        if self.batch_size and self.per_replica_batch_size:
            raise UserError(
                "give --batch-size (the whole job's) or --per-replica-batch-size, not both"
            )
        if (self.boundaries_epochs is None) != (self.factors is None):
            raise UserError("--boundaries-epochs and --factors belong together")
        boundaries, factors = self.boundaries_epochs or (), self.factors or ()
        if factors and len(factors) != len(boundaries) + 1:
            raise UserError(
                f"--factors: {len(factors)} given for {len(boundaries)} "
                "boundaries; one more is needed"
            )
        if list(boundaries) != sorted(set(boundaries)):
            raise UserError(f"--boundaries-epochs {','.join(map(str, boundaries))} do not rise")
        asynchronous = self.strategy == "parameter_server" and not self.sync
        if asynchronous and self.jit_compile:
            raise UserError(
                "--jit-compile is for synchronous jobs: XLA does not reach weights on parameter "
                "servers"
            )
        if self.patience and not self.eval_every_steps:
            raise UserError(
                f"--patience {self.patience} counts evaluations; give --eval-every-steps too"
            )

    def on(self, manifest: Manifest) -> Self:
        """Returns these options, with `model` filled in if no model was named.

        The model is then the trainer's first one for such a dataset.

        Raises:
          UserError: If an option or the model does not fit the dataset.
        """
        if self.class_weights:
            example_weights.class_weights(self.class_weights, manifest)
        if manifest.is_table and self.augment not in (None, "none"):
            raise UserError(
                f"--augment {self.augment} is for images; dataset {manifest.name!r} is a table; "
                "leave it out"
            )
        judging = (
            "--export best"
            if self.export == "best"
            else self.patience and f"--patience {self.patience}"
        )
        if judging and not manifest.splits["validation"].examples:
            raise UserError(
                f"{judging}: dataset {manifest.name!r} has no validation split to judge by; leave "
                "it out"
            )
        return dataclasses.replace(self, model=registry.suited(self.model, manifest))

    def builder(self, manifest: Manifest) -> registry.Builder:
        """Returns the builder of the model, with its task.

        Raises:
          UserError: If there is no such model, an option is not one of its own or has a wrong
            value, or its task cannot be made.
        """
        return registry.builder(self.model, manifest, self.network, self.model_options or ())

    @property
    def own(self) -> dict[str, Any]:
        """Options of a user's functions, by name: defaults, or values that `model_options` gives.

        They are keywords of the model's function, and of the functions `optimizer` and `task` of a
        user's own module. Flags such as `--hidden-units` are not considered.

        Raises:
          UserError: If there is no such model or option, or a value is not of the default's type.
        """
        return registry.own_options(self.model, self.model_options or ())

    @property
    def network(self) -> dict[str, Any]:
        """Options of the group `network` that are not None, by name."""
        return {name: value for name, value in self._where("network").items() if value is not None}

    def global_batch_size(self, replicas: int) -> int:
        """Returns the number of examples of a step over all replicas, 128 by default.

        Args:
          replicas: Number of synchronous replicas; 1 in a parameter-server job.
        """
        if self.per_replica_batch_size:
            return self.per_replica_batch_size * replicas
        return self.batch_size or 128

    def last_step(self, examples: int, replicas: int) -> int:
        """Returns the global step at which training ends.

        Args:
          examples: Number of examples in the training split.
          replicas: Number of synchronous replicas; 1 in a parameter-server job.

        Raises:
          UserError: If `--train-epochs` is more steps than the trainer can count.
        """
        if self.train_steps is not None:
            return self.train_steps
        step = math.ceil((self.train_epochs or 0) * examples / self.global_batch_size(replicas))
        if step > MOST:
            raise UserError(
                f"--train-epochs {self.train_epochs:g} is {step} steps, and {MOST} are the most "
                "there can be"
            )
        return step

    def is_met_by(self, record: Done) -> bool:
        """Returns whether a finished job has trained for at least these steps or epochs.

        A job that stopped early counts too, if it did so with this patience or a larger one.
        """
        if self.patience and record.stopped_early and self.patience <= record.stopped_early:
            return True
        return record.step >= (self.train_steps or 0) and record.epochs >= (self.train_epochs or 0)

    def identity(self) -> dict[str, Any]:
        """Returns the options that decide what is learnt, by name.

        Values are as in the flags, None for one without a value. The strategy is `synchronous` or
        `asynchronous`: all synchronous ones learn the same, with any number of replicas.
        """
        strategy = "asynchronous" if self.strategy == "parameter_server" else "synchronous"
        return {**self._where(*_LEARNT), "strategy": strategy}

    def facts(self, manifest: Manifest) -> dict[str, Any]:
        """Returns the options of `identity`, and the dataset's name and fingerprint.

        The latter two are called `dataset` and `fingerprint`.
        """
        return {**self.identity(), "dataset": manifest.name, "fingerprint": manifest.fingerprint}

    def _where(self, *groups: str) -> dict[str, Any]:
        return {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.metadata["group"] in groups
        }


def parser() -> Parser:
    """Returns the parser of the command line."""
    p = Parser(
        prog="trainer.task",
        description="Trains a model on a converted dataset. Every replica runs this with the same "
        "flags; its role comes from TF_CONFIG. The same --job-dir resumes. A flag of the network "
        "is for models that have such a thing. Where a flag of network or learning names no "
        "default, it is the model's own.",
    )
    Options.add_flags(p)
    return p


def parse(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Options:
    """Returns the options of a command line.

    `--train_steps` is the same as `--train-steps`, as in older programs. Without `--job-dir`, a
    custom job of Vertex AI uses the directory around `AIP_MODEL_DIR`, that is, its
    `baseOutputDirectory` or that of its trial. With a model of the user's own, other flags with a
    value become its `model_options`. Without `--threads`, the number is that in `TRAINER_THREADS`.
    `--help` prints the help and exits.

    Args:
      argv: Arguments without the program's name.
      environ: Environment variables.

    Raises:
      UserError: If a flag is unknown, is missing, has a value that is not allowed, or contradicts
        another one; or if `TRAINER_THREADS` is needed and is no number.
    """
    argv = [re.sub(r"^--[\w-]+", lambda m: m[0].replace("_", "-"), a) for a in argv]
    # Vertex AI's directories for a model, checkpoints and logs are .../model, .../checkpoints and
    # .../logs, as in a job directory. So the directory around them can be one.
    if base := re.fullmatch(r"(.+)/model/?", environ.get("AIP_MODEL_DIR", "")):
        argv = ["--job-dir", base[1], *argv]
    p = parser()
    model = re.search(r"--model[ =](\S+:\S+)", " ".join(argv))
    if model and {"-h", "--help"} & {*argv}:
        defaults = registry.own_options(model[1], ())
        p.epilog = f"flags of {model[1]} with their defaults: " + ", ".join(
            f"--{name} {default}" for name, default in defaults.items()
        )
    args, others = p.parse_known_args(argv)
    values = vars(args)
    if others and ":" not in values["model"]:
        p.error(f"unrecognized arguments: {' '.join(others)}")
    own = (*(values["model_options"] or ()), *_own_options(others))
    values["model_options"] = tuple(sorted(own)) or None  # Their order means nothing.
    values["threads"] = values["threads"] or variable(
        "TRAINER_THREADS", at_least(0, _MOST_THREADS), environ
    )
    if values["model"]:
        registry.check_name(values["model"])
    return Options(**values)


def _own_options(argv: Sequence[str]) -> list[str]:
    """Returns flags of a model of the user's own, each with its value, as `NAME=VALUE`.

    Raises:
      UserError: If a flag has no value, or an argument is neither flag nor value.
    """
    p = Parser(prog="trainer.task", add_help=False)
    for name in {arg.partition("=")[0] for arg in argv if re.match(r"--\w", arg)}:
        p.add_argument(name)
    return [f"{name}={value}" for name, value in vars(p.parse_args(argv)).items()]

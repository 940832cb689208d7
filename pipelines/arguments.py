"""What a pipeline run is to do, for every way to run it: its keys, and the pipeline's arguments from them.

Keys of `convert`, `evaluate` and the trainer are declared in their own `options.py`, and are keys here by that; their
values go on as a list of flags, which the step reads with the same declaration.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.machinery import PathFinder
from typing import Any

import pydantic

from common.cli import Flags, as_list, flag
from common.errors import UserError, unknown
from common.flags import Kind
from common.manifest import CLASSIFICATION
from common.storage.storage import is_remote
from components.convert.options import Options as ConvertOptions
from components.convert.sources.base import Reader
from components.convert.sources.registry import find_reader
from components.convert.tables import yaml_loader
from components.convert.tables.schema import ImageSchema, Schema
from components.convert.writing.label_feature import LABEL
from components.evaluate.checks import check_metrics
from components.evaluate.options import Options as EvaluateOptions
from components.register.registry import check_name
from components.train.backends.program import trainer_flags
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.source import SYNC
from trainer import options

DEFAULT_CLUSTER = "clusters/local-sync.yaml"
DEFAULT_STEPS = 600
EXIT_REJECTED = 3  # of --fail-on-reject
# What the pipeline gives to its steps itself.
_CONVERT_OWN = {"output": "-"}
EVALUATE_OWN = {"model_dir": "-", "data_dir": "-", "output": "-", "split": "test", "registry": "", "name": ""}
_TRAINER = ("model", "train_steps", "train_epochs", "batch_size", "seed")

# kfp.local gives a step its arguments in one word of a command line, which Linux limits to 128 KiB.
_MOST_BYTES = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Flags):
    """Keys of a run that no step declares."""

    source: str | tuple[str, ...] | None = flag(
        Kind(str, bool, "a path"),
        "files of the dataset, as components.convert takes them; for Vertex AI gs://BUCKET/DIR_OR_FILE",
        several=True,
        metavar="PATH",
    )
    cluster: str | None = flag(
        str,
        "cluster file: pools, machines, strategy (None: clusters/local-sync.yaml here, clusters/vertex-cpu.yaml there)",
        metavar="FILE",
    )
    deterministic: bool | None = flag(str, "the same bits in every run (None: unless the training is asynchronous)")
    name: str | None = flag(str, "of the model in the registry (None: that of the dataset)")
    fail_on_reject: bool = flag(bool, f"exit code {EXIT_REJECTED} if the model is rejected, for builds")
    no_cache: bool = flag(bool, "convert again")
    image: str = flag(
        str,
        "container image of the project: on Vertex AI by digest, here for --runner docker",
        default="",
        metavar="REF",
    )
    trainer_flags: str | tuple[str, ...] = flag(
        str, "of trainer.task; on a command line they follow --", default=(), several=True
    )


SHARED: Mapping[type[Flags], Collection[str]] = {
    ConvertOptions: (*_CONVERT_OWN, "source"),
    options.Options: [field.name for field in dataclasses.fields(options.Options) if field.name not in _TRAINER],
    EvaluateOptions: tuple(EVALUATE_OWN),
    RunOptions: (),
}


def add_trainer_flags(p: argparse.ArgumentParser) -> None:
    """Adds what follows `--`."""
    p.add_argument(
        "trainer_flags", nargs="*", metavar="-- trainer flags", default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


def pipeline_arguments(config: Any, cluster: Cluster, sources: Sequence[str]) -> dict[str, Any]:
    """Returns arguments of the pipeline; refuses what would make a step fail later.

    Args:
      config: Values of the keys of `SHARED`.
      cluster: What the training runs on.
      sources: Places of the data as the steps see them.
    """
    convert = ConvertOptions.of(config, **_CONVERT_OWN, source=sources or None)
    evaluate = evaluation(config)
    reader = find_reader(convert.dataset, **convert.reading)
    if "schema" in reader.takes and not convert.schema:
        if sources and all(map(os.path.exists, sources)):
            reader.files(convert.source)  # refuses too, and may know what a schema would say
        raise UserError(f"--dataset {convert.dataset} needs --schema FILE, which says what it holds")
    path = getattr(reader, "schema", None)
    schema = yaml_loader.load(pathlib.Path(path)) if path else None
    name = schema.name if convert.schema else convert.dataset
    name = config.name or re.sub("[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:63] or "model"
    check_name(name)
    trainer_args, training = _trainer_args(config, cluster)
    if isinstance(schema, Schema):
        _check_slices(schema, evaluate)
    is_own_model = ":" in (training.model or "")
    if is_own_model:
        _find_model(training.model, is_needed_here=not config.image)
    elif task := _task(reader, schema):  # a model of the user's own may have more metrics
        check_metrics(evaluate.limits, *task)
    arguments = {
        "cluster": cluster.to_json(),
        "trainer_args": trainer_args,
        "convert_args": convert.as_flags(but=(*_CONVERT_OWN, "schema")),
        "evaluate_args": evaluate.as_flags(but=EVALUATE_OWN),
        # The text: a file of this machine is not where the steps run.
        "schema": pathlib.Path(convert.schema).read_text(encoding="utf-8") if convert.schema else "",
        "name": name,
    }
    if (size := len(json.dumps(arguments))) > _MOST_BYTES:
        raise UserError(f"{size:,} bytes of flags are too many; give --source the directory instead of its files")
    return arguments


def evaluation(config: pydantic.BaseModel, before: Sequence[str] = ()) -> EvaluateOptions:
    """Returns options of the evaluation: those that are given, else those of `before`, the flags of an earlier start."""
    earlier = EvaluateOptions.parse(before, "components.evaluate", **EVALUATE_OWN)
    values = {**vars(earlier), **config.model_dump(exclude_unset=True)}
    evaluate = EvaluateOptions.of(argparse.Namespace(**values), **EVALUATE_OWN)
    _ = evaluate.limits  # refuses thresholds out of range
    return evaluate


def _check_slices(schema: Schema, evaluate: EvaluateOptions) -> None:
    """Refuses columns to measure by that a table does not have."""
    columns = [column.name for column in schema.stored] + [LABEL] * bool(schema.label.classes)
    for column in (*evaluate.slices, *evaluate.limits.slices):
        if column not in columns:
            raise unknown("column of slices", column, columns)


def _task(reader: Reader, schema: Schema | ImageSchema | None) -> tuple[str, Sequence[str]] | None:
    """The task of a dataset and the names of its classes or targets, as far as they are known without its source."""
    names, task = getattr(reader, "class_names", None), CLASSIFICATION
    if schema:
        label = schema.label if isinstance(schema, Schema) else schema
        names, task = (*label.classes, *label.targets), label.task
    return (task, names) if names else None


def _find_model(name: str, *, is_needed_here: bool) -> None:
    """Looks for the package of a model of the user's own, without importing it: steps run here, or in an image."""
    package = name.split(":")[0].split(".")[0]
    if PathFinder.find_spec(package, [os.getcwd(), *sys.path]):
        return
    missing = f"--model {name}: there is no module {package!r} here"
    if is_needed_here:
        raise UserError(f"{missing}; run in the directory that has it, or put that on PYTHONPATH")
    print(f"note: {missing}; the image has to have it on Python's path", file=sys.stderr)


def _trainer_args(config: Any, cluster: Cluster) -> tuple[list[str], options.Options]:
    """Returns the trainer's flags and what they say; a mistake is refused now and not by a replica later."""
    has_length = config.train_steps is not None or config.train_epochs is not None
    is_deterministic = config.deterministic
    if is_deterministic is None:
        is_deterministic = cluster.strategy != "parameter_server"
    fixed = {"data_dir": "-", "job_dir": "-", "deterministic": is_deterministic}
    if not has_length:
        fixed["train_steps"] = DEFAULT_STEPS
    own = options.Options.of(config, **fixed)
    more = [flag for flag in as_list(config.trainer_flags) if flag != SYNC]  # that is the cluster's strategy by now
    trainer_args = [*own.as_flags(but=("data_dir", "job_dir")), *more]
    parsed = options.parse(["--data-dir", "-", "--job-dir", "-", *trainer_flags(cluster, trainer_args)])
    if (parsed.data_dir, parsed.job_dir) != ("-", "-"):
        raise UserError("--data-dir and --job-dir come from the pipeline; leave them out behind the --")
    source = parsed.init_from
    if source and not is_remote(source) and not config.image and not os.path.exists(source):
        raise UserError(f"--init-from {source}: no such file or directory")
    return trainer_args, parsed

"""The flags that say what a pipeline run is to do, for every way to run it, and the pipeline's arguments from them.

Flags of `convert`, `evaluate` and the trainer are declared in their own `options.py`, and are flags here by that; what
they are given goes on as a list, which is read there with the same declaration.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from components.convert.options import Options as ConvertOptions
from components.convert.sources.base import Reader
from components.convert.sources.registry import find_reader
from components.convert.tables import yaml_loader
from components.convert.tables.schema import Schema
from components.evaluate.checks import check_metrics
from components.evaluate.options import Options as EvaluateOptions
from components.register.store import check_name
from components.train.backends.plan import trainer_flags
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.strategies import SYNC
from trainer import options
from trainer.base.errors import UserError
from trainer.base.flags import Kind
from trainer.base.manifest import CLASSIFICATION

DEFAULT_CLUSTER = "clusters/local-sync.yaml"
DEFAULT_STEPS = 600
EXIT_REJECTED = 3  # of --fail-on-reject
# What the pipeline gives to its steps itself.
_CONVERT_OWN = {"output": "-"}
_EVALUATE_OWN = {"model_dir": "-", "data_dir": "-", "output": "-", "split": "test", "registry": "", "name": ""}
_TRAINER = ("model", "train_steps", "train_epochs", "batch_size", "seed")
_TRAINING = f"More flags of trainer.task may follow after --. Without a length it is {DEFAULT_STEPS} steps."

# kfp.local gives a step its arguments in one word of a command line, which Linux limits to 128 KiB.
_MOST_BYTES = 100_000


def add_flags(p: argparse.ArgumentParser, *, cluster: str) -> None:
    """Adds the flags that all ways share."""
    data = p.add_argument_group("data")
    ConvertOptions.add_flags(data, but=(*_CONVERT_OWN, "source"))
    data.add_argument(
        "--source",
        type=Kind(str, bool, "a path"),
        nargs="+",
        action="extend",
        default=[],
        metavar="PATH",
        help="files of the dataset, as components.convert takes them; for Vertex AI gs://BUCKET/DIR_OR_FILE",
    )
    hidden = [field.name for field in dataclasses.fields(options.Options) if field.name not in _TRAINER]
    options.Options.add_flags(p, but=hidden, descriptions={"job": _TRAINING})
    train = p.add_argument_group("cluster")
    train.add_argument("--cluster", default=cluster, help="cluster file: pools, machines, strategy")
    train.add_argument(
        "--deterministic",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="the same bits in every run (None: unless the training is asynchronous)",
    )
    judge = p.add_argument_group("evaluation and registry")
    EvaluateOptions.add_flags(judge, but=_EVALUATE_OWN)
    judge.add_argument("--name", default=None, help="of the model in the registry (None: that of the dataset)")
    judge.add_argument(
        "--fail-on-reject", action="store_true", help=f"exit code {EXIT_REJECTED} if the model is rejected, for builds"
    )
    p.add_argument("trainer_flags", nargs="*", metavar="-- trainer flags", help=argparse.SUPPRESS)


def sources_seen(args: argparse.Namespace, seen: Callable[[str], str]) -> list[str]:
    """The sources as the steps see them, each path by `seen`; a query to BigQuery is the same for all."""
    return args.source if args.dataset == "bigquery" else [seen(source) for source in args.source]


def pipeline_arguments(args: argparse.Namespace, cluster: Cluster, sources: Sequence[str]) -> dict[str, Any]:
    """Arguments of the pipeline from the shared flags, with `sources` as the steps see them; none makes a step fail later."""
    convert = ConvertOptions.of(args, **_CONVERT_OWN, source=sources or None)
    evaluate = EvaluateOptions.of(args, **_EVALUATE_OWN)
    name, schema = convert.dataset, ""
    if convert.schema:
        name = yaml_loader.load(pathlib.Path(convert.schema)).name
        # The text: a file of this machine is not where the steps run.
        schema = pathlib.Path(convert.schema).read_text(encoding="utf-8")
    reader = find_reader(convert.dataset, **convert.reading)
    if "schema" in reader.takes and not convert.schema:
        if sources and all(map(os.path.exists, sources)):
            reader.files(convert.source)  # refuses too, and may know what a schema would say
        raise UserError(f"--dataset {convert.dataset} needs --schema FILE, which says what it holds")
    name = args.name or re.sub("[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:63] or "model"
    check_name(name)
    trainer_args, model = _trainer_args(args, cluster)
    gate = evaluate.asked  # refuses thresholds out of range
    if ":" not in (model or "") and (task := _task(reader)):  # a model of the user's own may have more metrics
        check_metrics(gate, *task)
    arguments = {
        "cluster": cluster.to_json(),
        "trainer_args": trainer_args,
        "convert_args": convert.as_flags(but=(*_CONVERT_OWN, "schema")),
        "evaluate_args": evaluate.as_flags(but=_EVALUATE_OWN),
        "schema": schema,
        "name": name,
    }
    if (size := len(json.dumps(arguments))) > _MOST_BYTES:
        raise UserError(f"{size:,} bytes of flags are too many; give --source the directory instead of its files")
    return arguments


def _task(reader: Reader) -> tuple[str, Sequence[str]] | None:
    """The task of a dataset and the names of its classes or targets, as far as they are known without its source."""
    names, task = getattr(reader, "class_names", None), CLASSIFICATION
    if schema := getattr(reader, "schema", None):
        content = yaml_loader.load(pathlib.Path(schema))
        label = content.label if isinstance(content, Schema) else content
        names, task = (*label.classes, *label.targets), label.task
    return (task, names) if names else None


def _trainer_args(args: argparse.Namespace, cluster: Cluster) -> tuple[list[str], str | None]:
    """The trainer's flags, read once so that a mistake is told now and not by a replica later, and the model's name."""
    steps = DEFAULT_STEPS if args.train_steps is None and args.train_epochs is None else args.train_steps
    deterministic = cluster.strategy != "parameter_server" if args.deterministic is None else args.deterministic
    own = options.Options.of(args, data_dir="-", job_dir="-", train_steps=steps, deterministic=deterministic)
    more = [flag for flag in args.trainer_flags if flag != SYNC]  # that is the cluster's strategy by now
    trainer_args = [*own.as_flags(but=("data_dir", "job_dir")), *more]
    parsed = options.parse(["--data-dir", "-", "--job-dir", "-", *trainer_flags(cluster, trainer_args)])
    if (parsed.data_dir, parsed.job_dir) != ("-", "-"):
        raise UserError("--data-dir and --job-dir come from the pipeline; leave them out behind the --")
    return trainer_args, parsed.model

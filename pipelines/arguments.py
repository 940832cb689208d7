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
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from typing import Any

from common.errors import UserError, unknown
from common.flags import Kind
from common.manifest import CLASSIFICATION
from common.storage.files import is_remote
from components.convert.options import Options as ConvertOptions
from components.convert.sources.base import Reader
from components.convert.sources.registry import find_reader
from components.convert.tables import yaml_loader
from components.convert.tables.schema import ImageSchema, Schema
from components.convert.writing.label_feature import LABEL
from components.evaluate.checks import check_metrics
from components.evaluate.options import Options as EvaluateOptions
from components.register.store import check_name
from components.train.backends.plan import trainer_flags
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.strategy import SYNC
from trainer import options
from trainer.data import example_weights

DEFAULT_CLUSTER = "clusters/local-sync.yaml"
DEFAULT_STEPS = 600
EXIT_REJECTED = 3  # of --fail-on-reject
# What the pipeline gives to its steps itself.
_CONVERT_OWN = {"output": "-"}
EVALUATE_OWN = {"model_dir": "-", "data_dir": "-", "output": "-", "split": "test", "registry": "", "name": ""}
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
    EvaluateOptions.add_flags(judge, but=EVALUATE_OWN, defaults=False)
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
    evaluate = evaluation(args)
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
    trainer_args, training = _trainer_args(args, cluster)
    content = _schema(reader)
    table = content if isinstance(content, Schema) else None
    stored = table.stored if table else []
    if table:
        columns = [column.name for column in stored] + [LABEL] * bool(table.label.classes)
        for column in (*evaluate.slices, *evaluate.asked.slices):
            if column not in columns:
                raise unknown("column of slices", column, columns)
    if training.weight_column is not None:
        numbers = [column.name for column in stored if column.dtype != "string"]
        encodings = [each.encoding for each in (*table.deep, *table.wide)] if table else []
        inputs = {column for encoding in encodings for column in encoding.columns}
        example_weights.check_name(training.weight_column, name, numbers=numbers, inputs=inputs)
    is_own_model = ":" in (training.model or "")
    if is_own_model:
        _find_model(training.model, is_needed_here=not args.image)
    elif task := _task(reader, content):  # a model of the user's own may have more metrics
        check_metrics(evaluate.asked, *task)
    arguments = {
        "cluster": cluster.to_json(),
        "trainer_args": trainer_args,
        "convert_args": convert.as_flags(but=(*_CONVERT_OWN, "schema")),
        "evaluate_args": evaluate.as_flags(but=EVALUATE_OWN),
        "schema": schema,
        "name": name,
    }
    if (size := len(json.dumps(arguments))) > _MOST_BYTES:
        raise UserError(f"{size:,} bytes of flags are too many; give --source the directory instead of its files")
    return arguments


def evaluation(args: argparse.Namespace, before: Sequence[str] = ()) -> EvaluateOptions:
    """Options of the evaluation: those on the command line, else those of `before`, the flags of an earlier start."""
    earlier = EvaluateOptions.parse(before, "components.evaluate", **EVALUATE_OWN)
    options = EvaluateOptions.of(argparse.Namespace(**{**vars(earlier), **vars(args)}), **EVALUATE_OWN)
    _ = options.asked  # refuses thresholds out of range
    return options


def _schema(reader: Reader) -> Schema | ImageSchema | None:
    """Content of the schema file of a dataset that has one."""
    schema = getattr(reader, "schema", None)
    return yaml_loader.load(pathlib.Path(schema)) if schema else None


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


def _trainer_args(args: argparse.Namespace, cluster: Cluster) -> tuple[list[str], options.Options]:
    """The trainer's flags, read once so that a mistake is told now and not by a replica later, and what they say."""
    steps = DEFAULT_STEPS if args.train_steps is None and args.train_epochs is None else args.train_steps
    deterministic = cluster.strategy != "parameter_server" if args.deterministic is None else args.deterministic
    own = options.Options.of(args, data_dir="-", job_dir="-", train_steps=steps, deterministic=deterministic)
    more = [flag for flag in args.trainer_flags if flag != SYNC]  # that is the cluster's strategy by now
    trainer_args = [*own.as_flags(but=("data_dir", "job_dir")), *more]
    parsed = options.parse(["--data-dir", "-", "--job-dir", "-", *trainer_flags(cluster, trainer_args)])
    if (parsed.data_dir, parsed.job_dir) != ("-", "-"):
        raise UserError("--data-dir and --job-dir come from the pipeline; leave them out behind the --")
    source = parsed.init_from
    if source and not is_remote(source) and not args.image and not os.path.exists(source):
        raise UserError(f"--init-from {source}: no such file or directory")
    return trainer_args, parsed

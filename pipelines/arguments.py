"""The flags that say what a pipeline run is to do, for every way to run it, and the pipeline's arguments from them."""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib
from typing import Any

import components.convert
from components.convert.options import Options as ConvertOptions
from components.convert.sources.registry import find_reader, source_digest
from components.convert.tables import yaml_loader
from components.evaluate.gate import thresholds
from components.train.backends.plan import trainer_flags
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.strategies import SYNC
from trainer import options
from trainer.base import feature_summary as trainer_summary
from trainer.base import framing, manifest
from trainer.base.errors import UserError
from trainer.nn.models.registry import NAMES

DEFAULT_CLUSTER = "clusters/local-sync.yaml"
DEFAULT_STEPS = 600


def add_flags(p: argparse.ArgumentParser, *, cluster: str) -> None:
    """Adds the flags that all ways share."""
    d = ConvertOptions
    data = p.add_argument_group("data")
    data.add_argument("--dataset", default=d.dataset, help="name of the dataset")
    data.add_argument("--source", default="", help="its files: a directory, or a table's CSV file (digits is built in)")
    data.add_argument("--schema", default="", help="file that says what --dataset csv or tfrecord holds")
    data.add_argument("--image-size", default="", metavar="HEIGHTxWIDTH", help="that a model gets of image files")
    data.add_argument(
        "--encoding", default="", choices=("raw", "source"), help="of image files (by their sizes without)"
    )
    data.add_argument("--shards", type=int, default=d.shards, help="TFRecord files of the training split")
    data.add_argument(
        "--validation-fraction", type=float, default=d.validation_fraction, help="of the training examples"
    )
    data.add_argument("--test-fraction", type=float, default=d.test_fraction, help="where the source has no test split")
    data.add_argument("--split-seed", type=int, default=d.split_seed, help="decides which examples these are")
    data.add_argument(
        "--max-drift",
        type=float,
        default=d.max_drift,
        help="fail if a feature is further than this from the training split in another one; 0 to 1, which allows any",
    )
    train = p.add_argument_group("training", "more flags of trainer.task may follow after --")
    train.add_argument("--cluster", default=cluster, help="cluster file: pools, machines, strategy")
    train.add_argument(
        "--model",
        help=f"{', '.join(NAMES)}, or package.module:function (None: cnn of images, wide_deep of a table)",
    )
    train.add_argument("--train-steps", type=int, help=f"global step to reach (without: {DEFAULT_STEPS})")
    train.add_argument("--train-epochs", type=float, help="the same in passes over the training split")
    train.add_argument("--batch-size", type=int, default=128, help="examples of one step over all replicas")
    train.add_argument("--seed", type=int, default=0, help="of initial weights and sample order")
    train.add_argument(
        "--deterministic",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="the same bits in every run (None: unless the training is asynchronous)",
    )
    judge = p.add_argument_group("evaluation and registry")
    judge.add_argument("--min-accuracy", type=float, default=0.0, help="of a model worth a version")
    judge.add_argument("--min-auc", type=float, default=0.0, help="the same, area under the ROC curve of two classes")
    judge.add_argument("--name", default=None, help="of the model in the registry (None: that of the dataset)")
    p.add_argument("trainer_flags", nargs="*", metavar="-- trainer flags", help=argparse.SUPPRESS)


def pipeline_arguments(args: argparse.Namespace, cluster: Cluster, source: str) -> dict[str, Any]:
    """Arguments of the pipeline from the shared flags; `source` is the directory as the steps see it.

    Raises:
      UserError: If any of them would make a step fail later.
    """
    deterministic = cluster.strategy != "parameter_server" if args.deterministic is None else args.deterministic
    trainer_args = [
        *(["--model", args.model] if args.model else []),
        *_length(args),
        *("--batch-size", str(args.batch_size)),
        *("--seed", str(args.seed)),
        *(["--deterministic"] if deterministic else []),
        *(flag for flag in args.trainer_flags if flag != SYNC),  # the cluster's strategy by now
    ]
    # Read once here so that a mistake is told now, and not by a replica some minutes later.
    parsed = options.parse(["--data-dir", "-", "--job-dir", "-", *trainer_flags(cluster, trainer_args)])
    if (parsed.data_dir, parsed.job_dir) != ("-", "-"):
        raise UserError("--data-dir and --job-dir come from the pipeline; leave them out behind the --")
    name, schema = args.dataset.replace(":", "-").replace("/", "-"), ""
    if args.schema:
        name = yaml_loader.load(pathlib.Path(args.schema)).name
        # The text: a file of this machine is not where the steps run.
        schema = pathlib.Path(args.schema).read_text(encoding="utf-8")
    reader = find_reader(args.dataset, schema=args.schema or None)
    if "schema" in reader.takes and not args.schema:
        if os.path.exists(source):
            reader.files(source)  # refuses too, and may know what a schema would say
        raise UserError(f"--dataset {args.dataset} needs --schema FILE, which says what it holds")
    thresholds(args.min_accuracy, args.min_auc)
    convert = ConvertOptions(
        dataset=args.dataset,
        source=source or None,
        schema=args.schema or None,
        image_size=args.image_size or None,
        encoding=args.encoding or None,
        output="-",
        shards=args.shards,
        validation_fraction=args.validation_fraction,
        max_drift=args.max_drift,
        test_fraction=args.test_fraction,
        split_seed=args.split_seed,
    )
    return {
        "cluster": cluster.to_json(),
        "trainer_args": trainer_args,
        "dataset": convert.dataset,
        "source": source,
        "schema": schema,
        "image_size": args.image_size,
        "encoding": args.encoding,
        "shards": convert.shards,
        "validation_fraction": convert.validation_fraction,
        "test_fraction": convert.test_fraction,
        "split_seed": convert.split_seed,
        "max_drift": convert.max_drift,
        "min_accuracy": args.min_accuracy,
        "min_auc": args.min_auc,
        "name": args.name or name,
    }


def _length(args: argparse.Namespace) -> list[str]:
    given = {"--train-steps": args.train_steps, "--train-epochs": args.train_epochs}
    given = {flag: value for flag, value in given.items() if value is not None} or {"--train-steps": DEFAULT_STEPS}
    return [text for flag, value in given.items() for text in (flag, str(value))]


def cache_key(dataset: str, source: str, schema: str = "") -> str:
    """SHA-256 (hexadecimal) over a source's files, its schema file if it needs one, and the code that converts them.

    Raises:
      UserError: If the dataset is unknown or its files are missing.
    """
    digest = hashlib.sha256(source_digest(dataset, source or None, schema or None).encode())
    code = pathlib.Path(components.convert.__file__).parent
    for path in sorted([*code.rglob("*.py"), *code.rglob("templates/*")]):
        digest.update(path.read_bytes())
    for module in (framing, manifest, trainer_summary):
        digest.update(pathlib.Path(module.__file__).read_bytes())
    return digest.hexdigest()

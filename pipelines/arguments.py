"""Keys common to all kinds of pipeline runs, and the pipeline's arguments made from them.

Keys of `convert`, of `evaluate` and of the trainer are the fields of these programs' own options.
Their values go to the step as a list of flags, which it parses with the same declaration.
"""

import argparse
import dataclasses
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pydantic

from common.cli import Flags, as_list, flag
from common.errors import UserError
from common.flags import place
from common.manifest import CLASSIFICATION
from components.convert.options import Options as ConvertOptions
from components.convert.sources.registry import SOURCES, find_source
from components.convert.sources.tables import TableSource
from components.evaluate.checks import check_metrics
from components.evaluate.options import Options as EvaluateOptions
from components.register.registry import check_name
from components.train.backends.program import trainer_flags
from components.train.cluster.cluster_file import SYNC, Cluster
from trainer.options import Options as TrainerOptions
from trainer.options import parse

# Keys that `run.py` and `submit.py` have as flags too.
FLAGS = (
    *(
        "dataset",
        "source",
        "schema",
        "model",
        "train_steps",
        "cluster",
        "name",
        "gate",
        "min_accuracy",
    ),
    *("fail_on_reject", "image"),
)
DEFAULT_CLUSTER = "clusters/local-sync.yaml"
DEFAULT_STEPS = 600
EXIT_REJECTED = 3  # Exit code of a rejected model with --fail-on-reject.
# Options that the pipeline itself sets for its steps, with placeholders; they are no keys of a run.
_CONVERT_OWN = {"output": "-"}
EVALUATE_OWN = {
    "model_dir": "-",
    "data_dir": "-",
    "output": "-",
    "split": "test",
    "registry": "",
    "name": "",
}
_TRAINER_OWN = {"data_dir": "-", "job_dir": "-"}
_TRAINER_KEYS = {"model", "train_steps", "train_epochs", "batch_size", "seed"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Flags):
    """Keys of a run that are not options of a step."""

    cluster: str | None = flag(
        str,
        "cluster file: pools, machines, strategy (None: clusters/local-sync.yaml here, "
        "clusters/vertex-cpu.yaml there)",
        metavar="FILE",
    )
    deterministic: bool | None = flag(
        str, "the same bits in every run (None: unless the training is asynchronous)"
    )
    name: str | None = flag(str, "of the model in the registry (None: that of the dataset)")
    fail_on_reject: bool = flag(
        bool, f"exit code {EXIT_REJECTED} if the model is rejected, for builds"
    )
    predict: str | tuple[str, ...] | None = flag(
        place,
        "files that the model predicts for once it is registered, as --source of "
        "components.predict; on Vertex AI JSON lines, gs://BUCKET/NAME.jsonl, where * in NAME "
        "stands for anything",
        several=True,
    )
    image: str = flag(
        str,
        "container image of the project: on Vertex AI by digest, here for --runner docker",
        default="",
        metavar="REF",
    )
    job_dir: str | None = flag(
        str,
        "directory of a training that is finished; its model is evaluated and registered, if all "
        "other keys are those that it was trained with",
        metavar="DIR",
    )
    trainer_flags: str | tuple[str, ...] = flag(
        str, "of trainer.task; on a command line they follow --", default=(), several=True
    )


SHARED: Mapping[type[Flags], Collection[str]] = {
    ConvertOptions: _CONVERT_OWN,
    TrainerOptions: {field.name for field in dataclasses.fields(TrainerOptions)} - _TRAINER_KEYS,
    EvaluateOptions: EVALUATE_OWN,
    RunOptions: (),
}


def pipeline_arguments(config: Any, cluster: Cluster, sources: Sequence[str]) -> dict[str, Any]:
    """Returns the arguments of the pipeline, by name, that are the same for all back ends.

    Args:
      config: Values of the keys of `SHARED`.
      cluster: Cluster that the training runs on.
      sources: Paths of the data as the steps see them.

    Returns:
      `cluster` as JSON; `trainer_args`, `convert_args` and `evaluate_args` as lists of flags;
      `schema`, the text of the schema file, empty without one; `name`, that of the model in the
      registry; `predict_source`, the files to predict for, and `should_predict`, whether there are
      any.

    Raises:
      UserError: If a value is wrong, a file of it cannot be read, or values do not fit each other.
        This finds all mistakes that would make a step fail later, as far as they show without
        reading the data.
    """
    convert = ConvertOptions.of(config, **_CONVERT_OWN, source=sources or None)
    evaluate = evaluation(config)
    source = find_source(convert.dataset, convert.source, **convert.source_options)
    schema = source.load_schema() if isinstance(source, TableSource) else None
    name = schema.name if schema and convert.schema else convert.dataset
    name = config.name or re.sub("[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:61] or "model"
    check_name(name)
    trainer_args, model = _trainer_args(config, cluster)
    names: tuple[str, ...] = getattr(SOURCES.get(convert.dataset), "class_names", None) or ()
    task = CLASSIFICATION
    if schema:
        names, task = (*schema.label.classes, *schema.label.targets), schema.label.task
    if names and ":" not in (model or ""):  # A model of the user's own may have more metrics.
        check_metrics(evaluate.limits, task, names)
    return {
        "cluster": cluster.to_json(),
        "trainer_args": trainer_args,
        "convert_args": convert.as_flags(but=(*_CONVERT_OWN, "schema")),
        "evaluate_args": evaluate.as_flags(but=EVALUATE_OWN),
        # The text of the file, since the steps may run on another machine.
        "schema": pathlib.Path(convert.schema).read_text(encoding="utf-8")
        if convert.schema
        else "",
        "name": name,
        "predict_source": as_list(config.predict),
        "should_predict": bool(config.predict),
    }


def evaluation(config: pydantic.BaseModel, before: Sequence[str] = ()) -> EvaluateOptions:
    """Returns the options of the evaluation.

    Args:
      config: Keys of the run. Those that are given win.
      before: Flags of an earlier start of the run, which give the values of all other options.

    Raises:
      UserError: If a value is not allowed, such as a threshold out of its metric's range.
    """
    earlier = EvaluateOptions.parse(before, "components.evaluate", **EVALUATE_OWN)
    values = {**vars(earlier), **config.model_dump(exclude_unset=True)}
    evaluate = EvaluateOptions.of(argparse.Namespace(**values), **EVALUATE_OWN)
    _ = evaluate.limits  # Raises an error if a threshold is out of range.
    return evaluate


def _trainer_args(config: Any, cluster: Cluster) -> tuple[list[str], str | None]:
    """Returns the flags of the trainer, and the name of the model among them or None.

    They are parsed here, so that a mistake in them shows before a replica starts. The flags that
    the pipeline sets itself and `--sync` are not among them. If the keys do not set them, training
    takes 600 steps, and is deterministic unless it has parameter servers.

    Raises:
      UserError: If a flag is wrong, names another strategy than the cluster, or is `--data-dir` or
        `--job-dir`.
    """
    fixed = {**_TRAINER_OWN, "deterministic": config.deterministic}
    if config.deterministic is None:
        fixed["deterministic"] = cluster.strategy != "parameter_server"
    if config.train_steps is None and config.train_epochs is None:
        fixed["train_steps"] = DEFAULT_STEPS
    own = TrainerOptions.of(config, **fixed).as_flags(but=_TRAINER_OWN)
    # The flag --sync has become the strategy of the cluster already.
    more = [flag for flag in as_list(config.trainer_flags) if flag != SYNC]
    parsed = parse(["--data-dir=-", "--job-dir=-", *trainer_flags(cluster, [*own, *more])])
    if {"data_dir": parsed.data_dir, "job_dir": parsed.job_dir} != _TRAINER_OWN:
        raise UserError(
            "--data-dir and --job-dir come from the pipeline; leave them out behind the --"
        )
    return [*own, *more], parsed.model

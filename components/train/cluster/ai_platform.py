"""Translates `trainingInput` files of AI Platform into the content of a cluster file.

    if is_one(document):
        source = translate(document, "config.yaml")
        source.values["strategy"]  # "one_device"
        source.values["chief"]     # {"machine": "n1-standard-4", "replicas": 1}

`tables/ai_platform.yaml` says for each key whether it is translated, noted, left out or refused.
Unknown keys are refused. Hardware that is no longer offered is replaced as that table or
`tables/not_offered.csv` says, and refused if they name no replacement.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field, create_model

from common.errors import UserError, about, unknown
from common.validation import Duration, Model, Name, number
from components.train.cluster.cluster_file import MachineSpec, Source
from components.train.cluster.machines import REPLACED_BY, check_gpu, check_machine

_TOP = "trainingInput"
_TABLE = yaml.safe_load((Path(__file__).parent / "tables" / "ai_platform.yaml").read_bytes())
_TIERS = _TABLE["tiers"]
_CUSTOM = "CUSTOM"
LEGACY_MACHINES: dict[str, dict[str, Any]] = _TABLE["machines"]
NAMES = (*_TIERS, _CUSTOM, *LEGACY_MACHINES)
# AI Platform's prefix of the keys of each role.
_PREFIXES = {
    "chief": "master",
    "worker": "worker",
    "ps": "parameterServer",
    "evaluator": "evaluator",
}
# Keys by which a file of AI Platform is recognized. `scheduling` is a key of cluster files too.
_MARKS = {_TOP, *_TABLE["keys"][_TOP]} - {"scheduling"}


# Both check functions accept hardware that is no longer offered, but has a replacement.
def _check_type(name: str) -> str:
    if "-" not in name and name not in LEGACY_MACHINES:
        raise unknown("machine type", name, LEGACY_MACHINES)
    check_machine(LEGACY_MACHINES.get(name, {}).get("machine") or REPLACED_BY.get(name, name))
    return name


def _check_accelerator(name: str) -> str:
    check_gpu(REPLACED_BY.get(name, name))
    return name


class _Theirs(Model, extra="ignore"):
    """Base of the parts of an AI Platform file; a subclass declares the keys that are translated.

    Other keys are ignored here because `_apply_table` handles them.
    """


class _Accelerator(_Theirs):
    type: Annotated[Name, AfterValidator(_check_accelerator)]
    count: Annotated[int, number(1, 16)]


class _Disk(_Theirs):
    bootDiskType: Literal["pd-ssd", "pd-standard"] = "pd-ssd"
    bootDiskSizeGb: Annotated[int, number(100, 64_000)] = 100


class _Config(_Theirs):
    acceleratorConfig: _Accelerator | None = None
    diskConfig: _Disk = _Disk()


class _Scheduling(_Theirs):
    maxRunningTime: Duration | None = None


class _Input(_Theirs):
    scaleTier: Any  # `_FIELDS` has its type, which mypy cannot read.
    args: tuple[Annotated[str, Field(coerce_numbers_to_str=True)], ...] = ()
    jobDir: Name | None = None
    region: Name | None = None
    scheduling: _Scheduling = _Scheduling()


_FIELDS: dict[str, Any] = {"scaleTier": (Literal[(*_TIERS, _CUSTOM)], "BASIC")}
for _prefix in _PREFIXES.values():
    _FIELDS[f"{_prefix}Type"] = (Annotated[Name, AfterValidator(_check_type)] | None, None)
    _FIELDS[f"{_prefix}Count"] = (Annotated[int, number(0, 1000)], 0)
    _FIELDS[f"{_prefix}Config"] = (_Config, _Config())
_Job: Any = create_model(
    "_Job", __base__=_Theirs, trainingInput=create_model("_Pools", __base__=_Input, **_FIELDS)
)


def named(name: str) -> dict[str, Any] | None:
    """Returns the document that the name of a scale tier or legacy machine stands for.

    Args:
      name: Name in upper or lower case, with `_` or `-` between its words.

    Returns:
      A document with a `trainingInput`, as in a file; None if there is no such tier or machine.
    """
    spelled = name.replace("-", "_").lower()  # gcloud wrote `basic-gpu` for `BASIC_GPU`.
    for known in NAMES:
        if known.lower() == spelled:
            return {
                _TOP: {"scaleTier": known}
                if known.isupper()
                else {"scaleTier": _CUSTOM, "masterType": known}
            }
    return None


def is_one(document: Any) -> bool:
    """Returns whether a document is an AI Platform file, not a cluster file.

    A mapping without `chief` that has `trainingInput`, or any key that belongs below it except
    `scheduling`, counts as one, so that `translate` can report a forgotten `trainingInput` line.
    """
    return (
        isinstance(document, Mapping)
        and "chief" not in document
        and not _MARKS.isdisjoint(document)
    )


def translate(document: Mapping[str, Any], name: str) -> Source:
    """Translates an AI Platform file; its pools decide the strategy.

    The strategy is `parameter_server` if there are parameter servers, else `multi_worker_mirrored`
    if there are workers, else `mirrored` if the chief has several GPUs, else `one_device`.

    Args:
      document: Content of the file, for which `is_one` is true.
      name: Name of the file, for notes and messages.

    Returns:
      The content of the equivalent cluster file, the trainer's flags, job directory and region of
      the file, and notes of what was replaced or left out. `Source.cluster` checks the rules of
      cluster files.

    Raises:
      UserError: If `trainingInput` is missing, or the file has an unknown or refused key, a wrong
        value, replicas without a machine type, machine types or counts with another scale tier than
        CUSTOM, pools with different disks, or machines that are neither offered nor replaced. The
        message begins with the place in the file.
    """
    if _TOP not in document:
        stray = min(_MARKS.intersection(document))
        raise UserError(
            f"top level: {stray} belongs under {_TOP}; add the line '{_TOP}:' and indent"
        )
    source = Source(name=name)
    job = _Job.read(document).trainingInput
    _apply_table(document, _TABLE["keys"], "", source)
    if job.scaleTier != _CUSTOM:
        for key in document[_TOP]:
            if key.endswith(("Type", "Count")):
                raise UserError(
                    f"{_TOP}.{key}: only with scaleTier: CUSTOM, and it is {job.scaleTier}; write "
                    "CUSTOM"
                )
        job = _Job.read({_TOP: {**document[_TOP], **_TIERS[job.scaleTier]}}).trainingInput
    source.args, source.job_dir, source.region = job.args, job.jobDir, job.region
    pools, disks = {}, {}
    for role, prefix in _PREFIXES.items():
        kind, config = getattr(job, f"{prefix}Type"), getattr(job, f"{prefix}Config")
        count = 1 if role == "chief" else getattr(job, f"{prefix}Count")
        if count and not kind:
            raise UserError(
                f"{_TOP}.{prefix}Type: missing; add '{prefix}Type: n1-standard-4' for {count} x "
                f"{role}"
            )
        if count:
            pools[role] = {
                **_machine(kind, config.acceleratorConfig, prefix, source),
                "replicas": count,
            }
            disks[prefix] = config.diskConfig
        elif kind or config != _Config():
            source.notes.append(
                f"{_TOP}.{prefix}{'Type' if kind else 'Config'}: not used, as without "
                f"{prefix}Count, or with 0, there are none, as on AI Platform; add "
                f"'{prefix}Count: 1' if one is meant"
            )
    strategy = (
        "mirrored" if pools["chief"].get("accelerator", {}).get("count", 1) > 1 else "one_device"
    )
    if "worker" in pools:
        strategy = "multi_worker_mirrored"
    if "ps" in pools:
        strategy = "parameter_server"
    source.values = {"strategy": strategy, **pools}
    if len(set(disks.values())) > 1:
        raise UserError(
            f"{_TOP}: {' and '.join(disks)} differ in diskConfig (100 GB of pd-ssd without); "
            "write the same"
        )
    disk = disks["master"]
    if disk != _Disk():
        source.values["disk"] = {"type": disk.bootDiskType, "size_gb": disk.bootDiskSizeGb}
    if job.scheduling.maxRunningTime:
        source.values["scheduling"] = {"timeout": job.scheduling.maxRunningTime}
    return source


def _apply_table(
    document: Mapping[str, Any], table: Mapping[str, Any], place: str, source: Source
) -> None:
    """Applies the table's actions to all keys of a document, those of nested mappings too.

    Args:
      document: A mapping of the file.
      table: The same part of `keys` in `tables/ai_platform.yaml`.
      place: Path of the document in the file; empty for the whole file.
      source: Gets the texts of the actions "note" (as notes) and "demand" (as replacements). The
        action "to" changes nothing, since `translate` handles these keys.

    Raises:
      UserError: If a key is unknown, or its action is "refuse".
    """
    for key, value in document.items():
        if key not in table:
            raise UserError(f"{place or 'top level'}: {unknown('key', str(key), table)}")
        where = f"{place}.{key}".lstrip(".")
        if isinstance(table[key], Mapping):
            _apply_table(value, table[key], where, source)
            continue
        action, text = table[key].split(": ", 1)
        if action == "refuse":
            raise UserError(f"{where}: {text}")
        texts = {"note": source.notes, "demand": source.replacements}.get(action, [])
        texts.append(f"{where}: {text}")


def _machine(kind: str, gpus: _Accelerator | None, prefix: str, source: Source) -> dict[str, Any]:
    """Returns the machine and accelerator of a pool, and records a replacement in `source`.

    Args:
      kind: Machine type in the file, possibly a legacy one.
      gpus: Accelerator in the file, or None.
      prefix: Prefix of the pool's keys in the file.
      source: Gets a note if a legacy name is translated, and a replacement if the hardware differs.

    Returns:
      The values of the key `machine` and, if the pool has GPUs, `accelerator`.

    Raises:
      UserError: If the machine is not offered with these GPUs.
    """
    # A legacy machine has `was` in the table if its hardware is no longer offered.
    legacy = dict(LEGACY_MACHINES.get(kind, {}))
    was = legacy.pop("was", None) or (MachineSpec.read(legacy).shape if legacy else kind)
    if gpus:
        was += f" with {gpus.count} {gpus.type}"
    values = legacy or {"machine": REPLACED_BY.get(kind, kind)}
    if gpus:
        values["accelerator"] = {"type": REPLACED_BY.get(gpus.type, gpus.type), "count": gpus.count}
    with about(f"{_TOP}.{prefix}Config.acceleratorConfig"):
        shape = MachineSpec.read(values).shape
    if shape != was:
        source.replacements.append(
            f"{_TOP}.{prefix}Type: {was} is no longer offered; replaced by {shape}"
        )
    elif legacy:
        source.notes.append(f"{_TOP}.{prefix}Type: {kind} is {shape}")
    return values

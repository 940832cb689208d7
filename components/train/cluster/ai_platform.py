"""AI Platform's `trainingInput`, translated into the content of a cluster file.

    if is_one(document):
        source = translate(document, "config.yaml")
        source.values == {"strategy": "one_device", "chief": {"machine": "n1-standard-4", "replicas": 1}}

`tables/ai_platform.yaml` says what becomes of each key. What has no equal is refused, but for the hardware and the keys for
which that table, or `tables/not_offered.csv`, has a replacement.
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
# Their prefix for each role of ours.
_PREFIXES = {
    "chief": "master",
    "worker": "worker",
    "ps": "parameterServer",
    "evaluator": "evaluator",
}
_MARKS = {_TOP, *_TABLE["keys"][_TOP]} - {"scheduling"}  # That one is a key of ours too.


def _check_type(name: str) -> str:
    if "-" not in name and name not in LEGACY_MACHINES:
        raise unknown("machine type", name, LEGACY_MACHINES)
    check_machine(LEGACY_MACHINES.get(name, {}).get("machine") or REPLACED_BY.get(name, name))
    return name


def _check_accelerator(name: str) -> str:
    check_gpu(REPLACED_BY.get(name, name))
    return name


class _Theirs(Model, extra="ignore"):
    """A part of a job file, of which `tables/ai_platform.yaml` has all keys, and this those that are translated."""


class _Accelerator(_Theirs):
    type: Annotated[Name, AfterValidator(_check_accelerator)]
    count: number(1, 16)


class _Disk(_Theirs):
    bootDiskType: Literal["pd-ssd", "pd-standard"] = "pd-ssd"
    bootDiskSizeGb: number(100, 64_000) = 100


class _Config(_Theirs):
    acceleratorConfig: _Accelerator | None = None
    diskConfig: _Disk = _Disk()


class _Scheduling(_Theirs):
    maxRunningTime: Duration | None = None


class _Input(_Theirs):
    scaleTier: Literal[(*_TIERS, _CUSTOM)] = "BASIC"
    args: tuple[Annotated[str, Field(coerce_numbers_to_str=True)], ...] = ()
    jobDir: Name | None = None
    region: Name | None = None
    scheduling: _Scheduling = _Scheduling()


_FIELDS: dict[str, Any] = {}
for _prefix in _PREFIXES.values():
    _FIELDS[f"{_prefix}Type"] = (Annotated[Name, AfterValidator(_check_type)] | None, None)
    _FIELDS[f"{_prefix}Count"] = (number(0, 1000), 0)
    _FIELDS[f"{_prefix}Config"] = (_Config, _Config())
_Job = create_model(
    "_Job", __base__=_Theirs, trainingInput=create_model("_Pools", __base__=_Input, **_FIELDS)
)


def named(name: str) -> dict[str, Any] | None:
    """Returns the document that the name of a tier or legacy machine stands for, if it is one."""
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
    """Returns whether the file is, or means to be, one of AI Platform and not of ours."""
    return (
        isinstance(document, Mapping)
        and "chief" not in document
        and not _MARKS.isdisjoint(document)
    )


def translate(document: Mapping[str, Any], name: str) -> Source:
    """Returns the cluster that a job file of AI Platform describes, with the strategy that its pools imply.

    Args:
      document: Content of the file.
      name: Its name.

    Raises:
      UserError: If something is wrong with the file; it names the place.
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
                f"{prefix}Count, or with 0, there are "
                f"none, as on AI Platform; add '{prefix}Count: 1' if one is meant"
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
    """Refuses unknown keys, and does what the table says of those that are not translated."""
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
    """Returns machine and accelerator of a pool, which are offered, and notes what they replace."""
    legacy = dict(LEGACY_MACHINES.get(kind, {}))
    was = legacy.pop("was", kind) + (f" with {gpus.count} {gpus.type}" if gpus else "")
    values = legacy or {"machine": REPLACED_BY.get(kind, kind)}
    if gpus:
        values["accelerator"] = {"type": REPLACED_BY.get(gpus.type, gpus.type), "count": gpus.count}
    with about(f"{_TOP}.{prefix}Config.acceleratorConfig"):
        shape = MachineSpec.read(values).shape
    if legacy and was == kind:
        source.notes.append(f"{_TOP}.{prefix}Type: {kind} is {shape}")
    elif shape != was:
        source.replacements.append(
            f"{_TOP}.{prefix}Type: {was} is no longer offered; replaced by {shape}"
        )
    return values

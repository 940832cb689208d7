"""AI Platform's `trainingInput`, translated into the content of a cluster file.

    if is_one(document):
        source = translate(document, "config.yaml", "AI Platform trainingInput")
        source.values == {"chief": {"machine": "n1-standard-4"}, "worker": {...}}

A key is refused where leaving it out would run another job than was meant, and otherwise carried over or told of.
Source of the keys, their defaults and their rules: the `ml.v1` API.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from common.errors import UserError, unknown
from components.train.cluster import machines
from components.train.cluster.checks import Model, Name, number, read, show
from components.train.cluster.keys import MAX_REPLICAS, MAX_TIMEOUT_S
from components.train.cluster.machines import Places
from components.train.cluster.notes import Note, Source
from components.train.cluster.scale_tiers import CUSTOM, LEGACY_MACHINES, LEGACY_TPU, TIERS, Legacy, without_effect

_TOP = "trainingInput"
# Their prefix for each role of ours.
_PREFIXES = {"chief": "master", "worker": "worker", "ps": "parameterServer", "evaluator": "evaluator"}
_EIGHT = Legacy("g2-standard-96", "NVIDIA_L4", 8)  # T4, which replace other GPUs that are gone, come by four at most.
_DISK_TYPES = ("pd-ssd", "pd-standard")  # The faster first.
# What must not be lost unseen.
_DEMANDS = ("network", "encryptionConfig")


def _digits(value: Any) -> Any:
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else value


def _number(low: int, high: int) -> Any:
    """A number; the API takes it as text as well."""
    return Annotated[number(low, high), BeforeValidator(_digits)]


def _argument(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{show(value)} is not a text; put it in quotes")
    return str(value)


def _whole_seconds(value: Any) -> int:
    match = re.fullmatch(r"(\d{1,9})(\.\d{1,9})?s", value) if isinstance(value, str) else None
    seconds = math.ceil(float(value[:-1])) if match else 0
    if not seconds:
        raise ValueError(f"{show(value)} is not a duration; write seconds, as in '3600s'")
    return seconds


def _no_search(value: Any) -> Any:
    raise ValueError("a search over many trials is not supported; remove it and start a job per setting")


class _Accelerators(Model):
    type: Annotated[Name, Field(examples=["NVIDIA_TESLA_T4"])]
    count: Annotated[_number(1, 16), Field(examples=[1])]


class _Disk(Model):
    bootDiskType: Literal["pd-ssd", "pd-standard"] = "pd-ssd"
    bootDiskSizeGb: _number(100, 64_000) = 100


class _Config(without_effect("poolConfig")):
    acceleratorConfig: _Accelerators | None = None
    diskConfig: _Disk | None = None


class _Scheduling(without_effect("scheduling")):
    maxRunningTime: Annotated[int, BeforeValidator(_whole_seconds)] | None = None


class TrainingInput(without_effect("trainingInput")):
    """A job, as the API writes it."""

    scaleTier: Literal[(*TIERS, CUSTOM)] = "BASIC"
    masterType: Name | None = None
    workerType: Name | None = None
    workerCount: _number(0, MAX_REPLICAS) = 0
    parameterServerType: Name | None = None
    parameterServerCount: _number(0, MAX_REPLICAS) = 0
    evaluatorType: Name | None = None
    evaluatorCount: _number(0, 1) = 0
    masterConfig: _Config = _Config()
    workerConfig: _Config = _Config()
    parameterServerConfig: _Config = _Config()
    evaluatorConfig: _Config = _Config()
    args: tuple[Annotated[str, BeforeValidator(_argument)], ...] = ()
    jobDir: Name | None = None
    region: Name | None = None
    scheduling: _Scheduling = _Scheduling()
    hyperparameters: Annotated[Any, BeforeValidator(_no_search)] = None
    useChiefInTfConfig: Annotated[
        bool, Field(strict=True, description="not needed, as the chief is called chief in every TF_CONFIG")
    ] = True


class _File(without_effect("topLevel")):
    trainingInput: TrainingInput


_MARKS = (_TOP, *(key for key in TrainingInput.model_fields if key != "scheduling"))  # That one is a key of ours too.


def is_one(document: Any) -> bool:
    """Whether the file is, or means to be, one of AI Platform and not of ours."""
    return isinstance(document, Mapping) and "chief" not in document and any(key in document for key in _MARKS)


def translate(document: Mapping[str, Any], name: str, kind: str) -> Source:
    """The cluster that a job file of AI Platform asks for, if it was right there; `name` and `kind` are the file's."""
    if _TOP not in document:
        stray = next(key for key in document if key in _MARKS)
        raise UserError(f"top level: {stray} belongs under {_TOP}; add the line '{_TOP}:' and indent")
    file = read(_File, document)
    values, notes = file.trainingInput, list(_unused(file, ""))
    pools = _pools(values, notes)
    return Source(
        name=name,
        kind=kind,
        values={**pools, **_disk(values, pools, notes), **_timeout(values.scheduling, notes)},
        notes=tuple(notes),
        region=values.region,
        args=values.args,
        job_dir=values.jobDir,
    )


def _config(values: TrainingInput, prefix: str) -> _Config:
    return getattr(values, f"{prefix}Config")


def _pools(values: TrainingInput, notes: list[Note]) -> dict[str, Any]:
    tier = values.scaleTier
    given = values.model_fields_set
    for prefix in _PREFIXES.values():
        for key in (f"{prefix}Type", f"{prefix}Count"):
            if key in given and tier != CUSTOM:
                raise UserError(f"{_TOP}.{key}: only with scaleTier: CUSTOM, and it is {tier}; write CUSTOM")
        if tier != CUSTOM and _config(values, prefix).acceleratorConfig:
            raise UserError(
                f"{_TOP}.{prefix}Config.acceleratorConfig: only with CUSTOM, and scaleTier is {tier}; write CUSTOM"
            )
    top, sizes = (_TOP, values) if tier == CUSTOM else (tier, TrainingInput(**TIERS[tier]))
    pools: dict[str, Any] = {}
    for role, prefix in _PREFIXES.items():
        place, counted = f"{top}.{prefix}Type", f"{prefix}Count"
        config, kind = _config(values, prefix), getattr(sizes, f"{prefix}Type")
        count = 1 if role == "chief" else getattr(sizes, counted)
        if kind:
            machine, note = _machine(kind, place, prefix, config)
            if count:
                pools[role] = machine if role == "chief" else machine | {"replicas": count}
                notes += [note] if note else []
            elif counted not in sizes.model_fields_set:
                none = f"without {counted} there are none, as on AI Platform; add '{counted}: 1' if one is meant"
                notes.append(Note(place=place, text=none))
        elif count:
            reason = "scaleTier: CUSTOM needs it" if role == "chief" else f"{counted} is {count}"
            raise UserError(f"{place}: missing, and {reason}; add '{prefix}Type: n1-standard-4'")
        if config.model_fields_set and not count:
            notes.append(Note(place=f"{_TOP}.{prefix}Config", text="not used, as there are no such replicas"))
    if "ps" in pools and "worker" not in pools:
        what = "none, and TensorFlow 2's chief hands out the work without training; one like the chief is added"
        notes.append(Note(place=f"{top}.workerCount", text=what, changes=True))
        pools["worker"] = pools["chief"] | {"replicas": 1}
    return pools


def _machine(kind: str, place: str, prefix: str, config: _Config) -> tuple[dict[str, Any], Note | None]:
    """A pool's machine and GPUs, and what there is to say about them."""
    gpus = config.acceleratorConfig
    gpus_place = f"{_TOP}.{prefix}Config.acceleratorConfig"
    if kind == LEGACY_TPU:
        raise UserError(f"{place}: {kind} is a TPU, which is out of scope here; use for example standard_gpu")
    if kind in LEGACY_MACHINES and gpus:
        raise UserError(f"{gpus_place}: {kind} takes none; give {prefix}Type a Compute Engine type, as n1-standard-8")
    if kind not in LEGACY_MACHINES and "-" not in kind:
        raise UserError(f"{place}: {unknown('machine type', kind, LEGACY_MACHINES)}")
    asked = LEGACY_MACHINES.get(kind) or Legacy(kind, *((gpus.type, gpus.count) if gpus else ()))
    found = replacement(asked)
    machines.check(Places(gpus_place if gpus else place, place, gpus_place), *found)
    note = None
    if found != asked:
        was = f"{kind} was {asked}" if kind in LEGACY_MACHINES else f"{asked}"
        note = Note(place=place, text=f"{was}, which is no longer offered; replaced by {found}", changes=True)
    elif kind in LEGACY_MACHINES:
        note = Note(place=place, text=f"{kind} is {found}")
    gpu = {"accelerator": {"type": found.gpu, "count": found.count}} if found.gpu else {}
    return {"machine": found.machine, **gpu}, note


def replacement(asked: Legacy) -> Legacy:
    """What is offered in place of a machine and its GPUs; what is still offered comes back as it is."""
    if asked.gpu in machines.SUCCESSORS and asked.count == _EIGHT.count:
        return _EIGHT
    machine = machines.SUCCESSORS.get(asked.machine, asked.machine)
    return Legacy(machine, asked.gpu and machines.SUCCESSORS.get(asked.gpu, asked.gpu), asked.count)


def _disk(values: TrainingInput, pools: Mapping[str, Any], notes: list[Note]) -> dict[str, Any]:
    """The one disk that all pools have in ours: the largest and fastest of those that are asked for."""
    if not any(_config(values, prefix).diskConfig for prefix in _PREFIXES.values()):
        return {}
    disks = [_config(values, _PREFIXES[role]).diskConfig or _Disk() for role in pools]
    size_gb = max(disk.bootDiskSizeGb for disk in disks)
    fastest = min((disk.bootDiskType for disk in disks), key=_DISK_TYPES.index)
    if disks.count(disks[0]) < len(disks):
        what = f"differs between the pools; all get {size_gb} GB of {fastest}"
        notes.append(Note(place=f"{_TOP}.diskConfig", text=what, changes=True))
    return {"disk": {"type": fastest, "size_gb": size_gb}}


def _timeout(scheduling: _Scheduling, notes: list[Note]) -> dict[str, Any]:
    seconds = scheduling.maxRunningTime
    if not seconds:
        return {}
    if seconds > MAX_TIMEOUT_S:
        text = f"{seconds} s is longer than any job may take here; replaced by {MAX_TIMEOUT_S} s"
        notes.append(Note(place=f"{_TOP}.scheduling.maxRunningTime", text=text, changes=True))
    return {"scheduling": {"timeout": f"{min(seconds, MAX_TIMEOUT_S)}s"}}


def _unused(model: Model, prefix: str) -> Iterator[Note]:
    """Tells of the keys without an effect, in the mappings below too."""
    for key, field in type(model).model_fields.items():
        if isinstance(inner := getattr(model, key), Model):
            yield from _unused(inner, f"{prefix}{key}.")
        elif field.description and key in model.model_fields_set:
            yield Note(place=prefix + key, text=field.description, changes=key in _DEMANDS)

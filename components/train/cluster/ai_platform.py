"""AI Platform's `trainingInput`, translated into the content of a cluster file.

Synopsis:

    if is_one(document):
        translation = translate(document)
        translation.values == {"chief": {"machine": "n1-standard-4"}, "worker": {...}}

A key is refused where leaving it out would run another job than was meant, and otherwise carried over or told of.
Source of the keys, their defaults and their rules: the `ml.v1` API.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from components.train.cluster import machines
from components.train.cluster.checks import fields, integer, one_of, show, text
from components.train.cluster.machines import Places
from components.train.cluster.notes import Note
from components.train.cluster.scale_tiers import CUSTOM, LEGACY_MACHINES, LEGACY_TPU, TIERS, Legacy
from trainer.base.errors import UserError, unknown

MAX_REPLICAS = 1000  # Of one pool; nobody means more.
_TOP = "trainingInput"
# Their prefix for each role of ours.
_PREFIXES = {"chief": "master", "worker": "worker", "ps": "parameterServer", "evaluator": "evaluator"}
_SIZES = [
    f"{prefix}{part}" for prefix in _PREFIXES.values() for part in ("Type", "Count") if prefix + part != "masterCount"
]
_OWN_PROGRAM = "not used, as the project's own trainer runs; for a program of yours see --command"
_IMAGE = "not used, as every replica runs in the image given with --image"
_LEFT_TO_SUBMIT = "not part of a cluster; set it where the job is submitted"
# Keys without an effect here, and why; those in `_DEMANDS` must not be lost unseen.
_UNUSED = {
    "packageUris": _OWN_PROGRAM,
    "pythonModule": _OWN_PROGRAM,
    "runtimeVersion": "not used, as the image decides the versions of TensorFlow and Python",
    "pythonVersion": "not used, as the image decides the versions of TensorFlow and Python",
    "useChiefInTfConfig": "not needed, as the chief is called chief in every TF_CONFIG",
    "serviceAccount": _LEFT_TO_SUBMIT,
    "enableWebAccess": _LEFT_TO_SUBMIT,
    "network": "not carried over; a job that must run in this network cannot be submitted from here",
    "encryptionConfig": "not carried over; a job that must use this key cannot be submitted from here",
}
_DEMANDS = ("network", "encryptionConfig")
_KEYS = (
    *("scaleTier", *_SIZES, *(f"{prefix}Config" for prefix in _PREFIXES.values())),
    *("args", "jobDir", "region", "scheduling", "hyperparameters", *_UNUSED),
)
_MARKS = ("trainingInput", *(key for key in _KEYS if key != "scheduling"))  # That one is a key of ours too.
_CONFIG_KEYS = ("imageUri", "acceleratorConfig", "containerCommand", "containerArgs", "diskConfig", "tpuTfVersion")
_DISK_TYPES = ("pd-ssd", "pd-standard")  # The faster first.
_DEFAULT_DISK = {"type": "pd-ssd", "size_gb": 100}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translation:
    """A `trainingInput` in our words.

    Attributes:
      values: Content of a cluster file, but for its strategy.
      notes: What is not as the file says.
      region: That it names.
      args: Flags of the trainer that it names.
      job_dir: That it names.
    """

    values: dict[str, Any]
    notes: tuple[Note, ...]
    region: str | None
    args: tuple[str, ...]
    job_dir: str | None


def is_one(document: Any) -> bool:
    """Whether the file is, or means to be, one of AI Platform and not of ours."""
    return isinstance(document, Mapping) and "chief" not in document and any(key in document for key in _MARKS)


def translate(document: Mapping[str, Any]) -> Translation:
    """The cluster that a job file of AI Platform asks for.

    Raises:
      UserError: If the file would have been refused there, or asks for what cannot be had.
    """
    if "trainingInput" not in document:
        stray = next(key for key in document if key in _MARKS)
        raise UserError(f"top level: {stray} belongs under trainingInput; add the line 'trainingInput:' and indent")
    document = fields(document, "top level", ("trainingInput", "jobId", "labels"))
    values = fields(document["trainingInput"], _TOP, _KEYS)
    if "hyperparameters" in values:
        raise UserError(
            f"{_TOP}.hyperparameters: a search over many trials is not supported; remove it and start a job per setting"
        )
    notes = [Note(place=key, text=_LEFT_TO_SUBMIT) for key in ("jobId", "labels") if key in document]
    configs = {prefix: _config(values, prefix) for prefix in _PREFIXES.values()}
    pools = _pools(values, configs, notes)
    args, job_dir, region = _args(values), _optional(values, "jobDir"), _optional(values, "region")
    content = {**pools, **_disk(pools, configs, notes), **_scheduling(values, notes)}
    _tell_unused(values, configs, notes)
    return Translation(values=content, notes=tuple(notes), region=region, args=args, job_dir=job_dir)


def _pools(values: dict[str, Any], configs: dict[str, Any], notes: list[Note]) -> dict[str, Any]:
    tier = one_of(values.get("scaleTier", "BASIC"), f"{_TOP}.scaleTier", (*TIERS, CUSTOM))
    sizes = {key: values[key] for key in _SIZES if key in values}
    if sizes and tier != CUSTOM:
        raise UserError(f"{_TOP}.{next(iter(sizes))}: only with scaleTier: CUSTOM, and it is {tier}; write CUSTOM")
    if tier != CUSTOM and (odd := [prefix for prefix, config in configs.items() if "acceleratorConfig" in config]):
        raise UserError(
            f"{_TOP}.{odd[0]}Config.acceleratorConfig: only with CUSTOM, and scaleTier is {tier}; write CUSTOM"
        )
    top = _TOP if tier == CUSTOM else tier
    sizes = sizes if tier == CUSTOM else TIERS[tier]
    pools: dict[str, Any] = {}
    for role, prefix in _PREFIXES.items():
        place, counted = f"{top}.{prefix}Type", f"{prefix}Count"
        count = 1 if role == "chief" else _count(sizes.get(counted, 0), f"{top}.{counted}", 0, MAX_REPLICAS)
        if role == "evaluator" and count > 1:
            raise UserError(f"{top}.{counted}: {count}, but a job has at most 1; write 1")
        if f"{prefix}Type" in sizes:
            machine, note = _machine(text(sizes[f"{prefix}Type"], place), place, prefix, configs[prefix])
            if count:
                pools[role] = machine if role == "chief" else machine | {"replicas": count}
                notes += [note] if note else []
            elif counted not in sizes:
                none = f"without {counted} there are none, as on AI Platform; add '{counted}: 1' if one is meant"
                notes.append(Note(place=place, text=none))
        elif count:
            reason = "scaleTier: CUSTOM needs it" if role == "chief" else f"{counted} is {count}"
            raise UserError(f"{place}: missing, and {reason}; add '{prefix}Type: n1-standard-4'")
        if configs[prefix] and not count:
            notes.append(Note(place=f"{_TOP}.{prefix}Config", text="not used, as there are no such replicas"))
    if "ps" in pools and "worker" not in pools:
        what = "none, and TensorFlow 2's chief hands out the work without training; one like the chief is added"
        notes.append(Note(place=f"{top}.workerCount", text=what, changes=True))
        pools["worker"] = pools["chief"] | {"replicas": 1}
    return pools


def _machine(kind: str, place: str, prefix: str, config: dict[str, Any]) -> tuple[dict[str, Any], Note | None]:
    """A pool's machine and GPUs, and what there is to say about them."""
    gpus = config.get("acceleratorConfig", ())
    gpus_place = f"{_TOP}.{prefix}Config.acceleratorConfig"
    if kind == LEGACY_TPU:
        raise UserError(f"{place}: {kind} is a TPU, which is out of scope here; use for example standard_gpu")
    if kind in LEGACY_MACHINES and gpus:
        raise UserError(f"{gpus_place}: {kind} takes none; give {prefix}Type a Compute Engine type, as n1-standard-8")
    if kind not in LEGACY_MACHINES and "-" not in kind:
        raise UserError(f"{place}: {unknown('machine type', kind, LEGACY_MACHINES)}")
    asked = LEGACY_MACHINES.get(kind) or Legacy(kind, *gpus)
    found = Legacy(*machines.substitute(*asked))
    machines.check(Places(gpus_place if gpus else place, place, gpus_place), *found)
    note = None
    if found != asked:
        was = f"{kind} was {asked}" if kind in LEGACY_MACHINES else f"{asked}"
        note = Note(place=place, text=f"{was}, which is no longer offered; replaced by {found}", changes=True)
    elif kind in LEGACY_MACHINES:
        note = Note(place=place, text=f"{kind} is {found}")
    gpu = {"accelerator": {"type": found.gpu, "count": found.count}} if found.gpu else {}
    return {"machine": found.machine, **gpu}, note


def _config(values: dict[str, Any], prefix: str) -> dict[str, Any]:
    """A pool's `...Config`, checked; the accelerators become (type, count), the disk as ours is written."""
    if f"{prefix}Config" not in values:
        return {}
    place = f"{_TOP}.{prefix}Config"
    config = fields(values[f"{prefix}Config"], place, _CONFIG_KEYS)
    if "imageUri" in config:
        text(config["imageUri"], f"{place}.imageUri")
    if "acceleratorConfig" in config:
        where = f"{place}.acceleratorConfig"
        gpus = fields(config["acceleratorConfig"], where, ("type", "count"))
        for key, example in (("type", "NVIDIA_TESLA_T4"), ("count", 1)):
            if key not in gpus:
                raise UserError(f"{where}.{key}: missing; add '{key}: {example}'")
        config["acceleratorConfig"] = (
            text(gpus["type"], f"{where}.type"),
            _count(gpus["count"], f"{where}.count", 1, 16),
        )
    if "diskConfig" in config:
        where = f"{place}.diskConfig"
        disk = fields(config["diskConfig"], where, ("bootDiskType", "bootDiskSizeGb"))
        config["diskConfig"] = {
            "type": one_of(disk.get("bootDiskType", "pd-ssd"), f"{where}.bootDiskType", _DISK_TYPES),
            "size_gb": _count(disk.get("bootDiskSizeGb", 100), f"{where}.bootDiskSizeGb", 100, 64_000),
        }
    return config


def _disk(pools: dict[str, Any], configs: dict[str, Any], notes: list[Note]) -> dict[str, Any]:
    """The one disk that all pools have in ours: the largest and fastest of those that are asked for."""
    if not any("diskConfig" in config for config in configs.values()):
        return {}
    disks = [configs[_PREFIXES[role]].get("diskConfig", _DEFAULT_DISK) for role in pools]
    size_gb = max(disk["size_gb"] for disk in disks)
    fastest = min((disk["type"] for disk in disks), key=_DISK_TYPES.index)
    if disks.count(disks[0]) < len(disks):
        what = f"differs between the pools; all get {size_gb} GB of {fastest}"
        notes.append(Note(place=f"{_TOP}.diskConfig", text=what, changes=True))
    return {"disk": {"type": fastest, "size_gb": size_gb}}


def _scheduling(values: dict[str, Any], notes: list[Note]) -> dict[str, Any]:
    if "scheduling" not in values:
        return {}
    place = f"{_TOP}.scheduling"
    given = fields(values["scheduling"], place, ("maxRunningTime", "maxWaitTime", "priority"))
    if "maxWaitTime" in given:
        notes.append(Note(place=f"{place}.maxWaitTime", text="not used; Vertex AI has it for FLEX_START only"))
    if "priority" in given:
        notes.append(Note(place=f"{place}.priority", text="not used; Vertex AI has no such thing"))
    if "maxRunningTime" not in given:
        return {}
    limit = given["maxRunningTime"]
    match = re.fullmatch(r"(\d{1,9})(\.\d{1,9})?s", limit) if isinstance(limit, str) else None
    seconds = math.ceil(float(limit[:-1])) if match else 0
    if not seconds:
        raise UserError(f"{place}.maxRunningTime: {show(limit)} is not a duration; write seconds, as in '3600s'")
    return {"scheduling": {"timeout": f"{seconds}s"}}


def _args(values: dict[str, Any]) -> tuple[str, ...]:
    args = values.get("args", [])
    if not isinstance(args, list):
        raise UserError(f"{_TOP}.args: {show(args)} is not a list; write a '- ' before each argument")
    for index, each in enumerate(args):
        if isinstance(each, bool) or not isinstance(each, str | int | float):
            raise UserError(f"{_TOP}.args[{index}]: {show(each)} is not a text; put it in quotes")
    return tuple(map(str, args))


def _tell_unused(values: dict[str, Any], configs: dict[str, Any], notes: list[Note]) -> None:
    """Notes keys without an effect; one note where several say the same."""
    if not isinstance(values.get("useChiefInTfConfig", True), bool):
        given = show(values["useChiefInTfConfig"])
        raise UserError(f"{_TOP}.useChiefInTfConfig: {given} is neither true nor false; write true, or remove it")
    places: dict[str, list[str]] = {}
    for key, why in _UNUSED.items():
        if key in values:
            places.setdefault(why, []).append(key)
    for prefix, config in configs.items():
        for key in config.keys() & {"imageUri", "containerCommand", "containerArgs", "tpuTfVersion"}:
            places.setdefault(_IMAGE if key == "imageUri" else _OWN_PROGRAM, []).append(f"{prefix}Config.{key}")
    for why, keys in places.items():
        changes = any(key in _DEMANDS for key in keys)
        notes.append(Note(place=f"{_TOP}.{', '.join(sorted(keys))}", text=why, changes=changes))


def _optional(values: dict[str, Any], key: str) -> str | None:
    return text(values[key], f"{_TOP}.{key}") if key in values else None


def _count(value: Any, where: str, low: int, high: int) -> int:
    """A number; the API takes it as text as well."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        value = int(value)
    return integer(value, where, low, high)

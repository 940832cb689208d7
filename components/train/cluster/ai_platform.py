"""AI Platform's `trainingInput`, translated into the content of a cluster file.

    if is_one(document):
        source = translate(document, Source(name="config.yaml", kind="AI Platform trainingInput"))
        source.values == {"strategy": "one_device", "chief": {"machine": "n1-standard-4"}}

A key is refused where leaving it out would run another job than was meant, and otherwise carried over or noted.
Source of the keys, their defaults and their rules: the `ml.v1` API.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, create_model

from common.errors import UserError, about
from common.strict_yaml import parse
from components.train.cluster import machines, strategy
from components.train.cluster.machines import MACHINES, REPLACED_BY
from components.train.cluster.source import Source
from components.train.cluster.validation import Duration, Model, Name, number

_TOP = "trainingInput"
_TABLE = parse((Path(__file__).parent / "tables" / "ai_platform.yaml").read_bytes())
_TIERS = _TABLE["tiers"]
_CUSTOM = "CUSTOM"
# Their prefix for each role of ours.
_PREFIXES = {"chief": "master", "worker": "worker", "ps": "parameterServer", "evaluator": "evaluator"}


@dataclasses.dataclass(frozen=True)
class _Pool:
    """Equal machines with equal GPUs."""

    machine: str
    gpu: str = ""
    gpus: int = 0
    replicas: int = 1

    def __str__(self) -> str:
        return f"{self.machine} with {self.gpus} {self.gpu}" if self.gpu else self.machine

    @property
    def key(self) -> dict[str, Any]:
        """What a cluster file says of it."""
        gpus = {"accelerator": {"type": self.gpu, "count": self.gpus}} if self.gpu else {}
        return {"machine": self.machine, "replicas": self.replicas, **gpus}

    @property
    def replacement(self) -> "_Pool":
        """What is offered in place of it: itself, or other machines with the same number of GPUs."""
        if self.gpu in REPLACED_BY and self.gpus == 8:
            return _Pool(*_TABLE["eight_gpus"], self.replicas)
        names = {"machine": self.machine, "gpu": self.gpu}
        return dataclasses.replace(self, **{key: REPLACED_BY.get(name, name) for key, name in names.items()})


LEGACY_MACHINES = {name: _Pool(*shape) for name, shape in _TABLE["machines"].items()}
NAMES = (*_TIERS, _CUSTOM, *LEGACY_MACHINES, "cloud_tpu")


def _check_gpu(name: str) -> str:
    machines.check_gpu(REPLACED_BY.get(name, name))
    return name


def _refuse_search(value: Any) -> Any:
    raise ValueError("a search over many trials is not supported; remove it and start a job per setting")


def _without_effect(name: str) -> type[Model]:
    """Returns a model of the keys of a mapping that have no effect here, each described by the reason."""
    keys = {key: (Any, Field(None, description=why)) for key, why in _TABLE["without_effect"][name].items()}
    return create_model(name, __base__=Model, **keys)


class _Accelerators(Model):
    type: Annotated[Name, AfterValidator(_check_gpu), Field(examples=["NVIDIA_TESLA_T4"])]
    count: Annotated[number(1, 16), Field(examples=[1])]


class _Disk(Model):
    bootDiskType: Literal["pd-ssd", "pd-standard"] = "pd-ssd"
    bootDiskSizeGb: number(100, 64_000) = 100


class _Config(_without_effect("poolConfig")):
    acceleratorConfig: _Accelerators | None = None
    diskConfig: _Disk | None = None


class _Scheduling(_without_effect("scheduling")):
    maxRunningTime: Duration | None = None


class _TrainingInput(_without_effect("trainingInput")):
    scaleTier: Literal[(*_TIERS, _CUSTOM)] = "BASIC"
    masterType: Name | None = None
    workerType: Name | None = None
    workerCount: number(0, 1000) = 0
    parameterServerType: Name | None = None
    parameterServerCount: number(0, 1000) = 0
    evaluatorType: Name | None = None
    evaluatorCount: number(0, 1) = 0
    masterConfig: _Config = _Config()
    workerConfig: _Config = _Config()
    parameterServerConfig: _Config = _Config()
    evaluatorConfig: _Config = _Config()
    args: tuple[Annotated[str, Field(coerce_numbers_to_str=True)], ...] = ()
    jobDir: Name | None = None
    region: Name | None = None
    scheduling: _Scheduling = _Scheduling()
    hyperparameters: Annotated[Any, BeforeValidator(_refuse_search)] = None


class _File(_without_effect("topLevel")):
    trainingInput: _TrainingInput


_MARKS = {_TOP, *_TrainingInput.model_fields} - {"scheduling"}  # That one is a key of ours too.


def named(name: str) -> dict[str, Any] | None:
    """Returns the document that the name of a tier or legacy machine stands for, if it is one."""
    written = name.replace("-", "_")  # gcloud wrote `basic-gpu` for `BASIC_GPU`.
    if written.upper() in (*_TIERS, _CUSTOM):
        return {_TOP: {"scaleTier": written.upper()}}
    return {_TOP: {"scaleTier": _CUSTOM, "masterType": written.lower()}} if written.lower() in NAMES else None


def is_one(document: Any) -> bool:
    """Returns whether the file is, or means to be, one of AI Platform and not of ours."""
    return isinstance(document, Mapping) and "chief" not in document and not _MARKS.isdisjoint(document)


def translate(
    document: Mapping[str, Any], source: Source, flags: Sequence[str] | None = None, override: str | None = None
) -> Source:
    """Fills in the cluster that a job file of AI Platform asks for, with a strategy that fits.

    Args:
      document: Content of the file.
      source: Its name and kind; the rest is added.
      flags: The trainer's, which may decide the strategy; None for the file's own.
      override: Strategy in place of that.

    Returns:
      The source.
    """
    if _TOP not in document:
        stray = min(_MARKS.intersection(document))
        raise UserError(f"top level: {stray} belongs under {_TOP}; add the line '{_TOP}:' and indent")
    file = _File.read(document)
    job = file.trainingInput
    source.region, source.args, source.job_dir = job.region, job.args, job.jobDir
    _note_keys_without_effect(file, "", source)
    pools = _pools(job, source)
    source.values = {"strategy": _default_strategy(pools), **pools}
    strategy.choose(source, job.args if flags is None else flags, override)
    _fit_gpus(source.values, source)
    used = [role for role in pools if role in source.values]
    source.values |= {role: source.values[role].key for role in used}
    _translate_disks([getattr(job, f"{_PREFIXES[role]}Config").diskConfig for role in used], source)
    if job.scheduling.maxRunningTime:
        source.values["scheduling"] = {"timeout": job.scheduling.maxRunningTime}
    return source


def _pools(job: _TrainingInput, source: Source) -> dict[str, _Pool]:
    tier = job.scaleTier
    sizes, top = job, _TOP
    if tier != _CUSTOM:
        sizes, top = _TrainingInput(**_TIERS[tier]), tier
    pools = {}
    for role, prefix in _PREFIXES.items():
        config, kind = getattr(job, f"{prefix}Config"), getattr(sizes, f"{prefix}Type")
        custom = {f"{prefix}Type", f"{prefix}Count"} & job.model_fields_set
        if config.acceleratorConfig:
            custom.add(f"{prefix}Config.acceleratorConfig")
        if custom and tier != _CUSTOM:
            raise UserError(f"{_TOP}.{min(custom)}: only with scaleTier: CUSTOM, and it is {tier}; write CUSTOM")
        count = 1 if role == "chief" else getattr(sizes, f"{prefix}Count")
        place = f"{top}.{prefix}Type"
        if count and not kind:
            raise UserError(f"{place}: missing, but needed for {count} x {role}; add '{prefix}Type: n1-standard-4'")
        if count:
            pools[role] = _translate_pool(kind, count, config.acceleratorConfig, prefix, place, source)
        elif kind and f"{prefix}Count" not in sizes.model_fields_set:
            source.notes.append(
                f"{place}: without {prefix}Count there are none, as on AI Platform; add '{prefix}Count: 1' if one is meant"
            )
        if config.model_fields_set and not count:
            source.notes.append(f"{_TOP}.{prefix}Config: not used, as there are no such replicas")
    if "ps" in pools and "worker" not in pools:
        pools["worker"] = pools["chief"]
        source.replacements.append(
            f"{top}.workerCount: none, and TensorFlow 2's chief hands out the work without training; one like the chief is "
            "added"
        )
    return pools


def _translate_pool(
    kind: str, replicas: int, gpus: _Accelerators | None, prefix: str, place: str, source: Source
) -> _Pool:
    gpus_place = f"{_TOP}.{prefix}Config.acceleratorConfig"
    was = LEGACY_MACHINES.get(kind) or _Pool(kind, *((gpus.type, gpus.count) if gpus else ()))
    pool = was.replacement
    if gpus and kind in LEGACY_MACHINES:
        raise UserError(f"{gpus_place}: {kind} takes none; give {prefix}Type a Compute Engine type, as n1-standard-8")
    with about(place):
        machines.check_machine(pool.machine, LEGACY_MACHINES)
    with about(gpus_place):
        machines.check_gpus(pool.machine, pool.gpu, pool.gpus)
    legacy = f"{kind} was " if kind in LEGACY_MACHINES else ""
    if pool != was:
        source.replacements.append(f"{place}: {legacy}{was}, which is no longer offered; replaced by {pool}")
    elif legacy:
        source.notes.append(f"{place}: {kind} is {pool}")
    return dataclasses.replace(pool, replicas=replicas)


def _default_strategy(pools: Mapping[str, _Pool]) -> str:
    for role, strategies in reversed(strategy.STRATEGIES_WITH.items()):
        if role in pools:
            return strategies[0]
    return "mirrored" if pools["chief"].gpus > 1 else "one_device"


def _fit_gpus(pools: dict[str, Any], source: Source) -> None:
    """Has every pool pay for the GPUs alone that the strategy computes on, and synchronous replicas have equal numbers."""
    chosen = pools["strategy"]
    for role in ("chief", "worker", "ps"):
        if role not in pools or not (gpus := pools[role].gpus):
            continue
        pool, most = pools[role], strategy.most_gpus(chosen, role)
        counts = MACHINES[pool.machine].gpus
        if most == 0:
            machine = pool.machine if "" in counts else _TABLE["without_gpus"]
            pools[role] = _Pool(machine, replicas=pool.replicas)
            source.replacements.append(
                f"{role}: its {gpus} {pool.gpu} are left out, as this role computes nothing; it runs on {machine}"
            )
        elif role == "worker" and gpus > most:
            machine = pool.machine if 1 in counts[pool.gpu] else _TABLE["one_gpu"].get(pool.gpu, pool.machine)
            pools[role] = _Pool(machine, pool.gpu, 1, pool.replicas * gpus)
            source.replacements.append(
                f"{role}: {pool.replicas} with {gpus} GPUs become {pool.replicas * gpus} {machine} with 1 {pool.gpu}: each "
                "computes on 1"
            )
    if chosen != "multi_worker_mirrored" or "worker" not in pools:
        return
    fewer, more = sorted(("chief", "worker"), key=lambda role: pools[role].gpus)
    if pools[fewer].gpus < pools[more].gpus:
        pools[fewer] = dataclasses.replace(pools[more], replicas=pools[fewer].replicas)
        source.replacements.append(
            f"{fewer}: it gets the machine and the {pools[more].gpus} GPUs of the {more}, as all compute every step together"
        )


def _translate_disks(configs: Sequence[_Disk | None], source: Source) -> None:
    """Makes the one disk that all pools have in ours: the largest and fastest of those in the file."""
    if not any(configs):
        return
    disks = {config or _Disk() for config in configs}
    size_gb = max(disk.bootDiskSizeGb for disk in disks)
    fastest = min(disk.bootDiskType for disk in disks)  # pd-ssd comes before pd-standard.
    source.values["disk"] = {"type": fastest, "size_gb": size_gb}
    if len(disks) > 1:
        source.replacements.append(f"{_TOP}.diskConfig: differs between the pools; all get {size_gb} GB of {fastest}")


def _note_keys_without_effect(model: Model, prefix: str, source: Source) -> None:
    for key, field in type(model).model_fields.items():
        value = getattr(model, key)
        if isinstance(value, Model):
            _note_keys_without_effect(value, f"{prefix}{key}.", source)
        elif field.description and key in model.model_fields_set:
            texts = source.replacements if key in _TABLE["demands"] else source.notes
            texts.append(f"{prefix}{key}: {field.description}")

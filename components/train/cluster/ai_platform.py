"""AI Platform's `trainingInput`, translated into the content of a cluster file.

    if is_one(document):
        source = translate(document, Source(name="config.yaml", kind="AI Platform trainingInput"))
        source.values == {"strategy": "one_device", "chief": Pool(machine="n1-standard-4")}

`tables/ai_platform.yaml` says what becomes of each key. A key is refused where leaving it out would run another job than
was meant, and otherwise carried over or noted.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from common.errors import UserError, unknown
from components.train.cluster.cluster_file import Disk, Pool, most_gpus
from components.train.cluster.machines import MACHINES, REPLACED_BY
from components.train.cluster.source import Source
from components.train.cluster.validation import Duration, Model, Name, show

_TOP = "trainingInput"
_TABLE = yaml.safe_load((Path(__file__).parent / "tables" / "ai_platform.yaml").read_bytes())
_TIERS = _TABLE["tiers"]
_CUSTOM = "CUSTOM"
LEGACY_MACHINES: dict[str, dict[str, Any]] = _TABLE["machines"]
NAMES = (*_TIERS, _CUSTOM, *LEGACY_MACHINES)
# Their prefix for each role of ours.
_PREFIXES = {"chief": "master", "worker": "worker", "ps": "parameterServer", "evaluator": "evaluator"}
_MARKS = {_TOP, *_TABLE["keys"][_TOP]} - {"scheduling"}  # That one is a key of ours too.


class _Scheduling(Model, extra="ignore"):
    maxRunningTime: Duration | None = None


class _Job(Model, extra="ignore"):
    """Keys beside those of the pools."""

    scaleTier: Literal[(*_TIERS, _CUSTOM)] = "BASIC"
    args: tuple[Annotated[str, Field(coerce_numbers_to_str=True)], ...] = ()
    jobDir: Name | None = None
    region: Name | None = None
    scheduling: _Scheduling = _Scheduling()


class _File(Model, extra="ignore"):
    trainingInput: _Job


def named(name: str) -> dict[str, Any] | None:
    """Returns the document that the name of a tier or legacy machine stands for, if it is one."""
    written = name.replace("-", "_").lower()  # gcloud wrote `basic-gpu` for `BASIC_GPU`.
    known = next((each for each in NAMES if each.lower() == written), None)
    if not known:
        return None
    return {_TOP: {"scaleTier": known} if known.isupper() else {"scaleTier": _CUSTOM, "masterType": known}}


def is_one(document: Any) -> bool:
    """Returns whether the file is, or means to be, one of AI Platform and not of ours."""
    return isinstance(document, Mapping) and "chief" not in document and not _MARKS.isdisjoint(document)


def translate(
    document: Mapping[str, Any], source: Source, flags: Sequence[str] | None = None, override: str | None = None
) -> Source:
    """Fills in the cluster that a job file of AI Platform describes, with a strategy that fits.

    Args:
      document: Content of the file.
      source: Its name and kind; the rest is added.
      flags: The trainer's, which may decide the strategy; None for the file's own.
      override: Strategy in place of that.

    Returns:
      The source.

    Raises:
      UserError: If something is wrong with the file; it names the place.
    """
    if _TOP not in document:
        stray = min(_MARKS.intersection(document))
        raise UserError(f"top level: {stray} belongs under {_TOP}; add the line '{_TOP}:' and indent")
    _apply_table(document, _TABLE["keys"], "", source)
    content, job = document[_TOP], _File.read(document).trainingInput
    source.args, source.job_dir, source.region = job.args, job.jobDir, job.region
    pools = _pools(content, job.scaleTier, source)
    source.values = {"strategy": _default_strategy(pools), **pools}
    source.choose_strategy(job.args if flags is None else flags, override)
    _fit_gpus(source.values, source)
    _translate_disks(content, source)
    if job.scheduling.maxRunningTime:
        source.values["scheduling"] = {"timeout": job.scheduling.maxRunningTime}
    return source


def _apply_table(document: Any, table: Mapping[str, Any], place: str, source: Source) -> None:
    """Refuses unknown keys, and does what the table says of those that are not translated."""
    if not isinstance(document, Mapping):
        raise UserError(f"{place}: {show(document)} is not a mapping; write 'key: value' of {', '.join(table)}")
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
        if action in ("note", "demand"):
            (source.notes if action == "note" else source.replacements).append(f"{where}: {text}")


@contextlib.contextmanager
def _places(theirs: Mapping[str, str]) -> Iterator[None]:
    """Has errors name places of the file: each of ours, with which a message may begin, by that of theirs."""
    try:
        yield
    except UserError as error:
        ours = next(each for each in theirs if str(error).startswith(each))
        raise UserError(theirs[ours] + str(error).removeprefix(ours)) from None


def _pools(content: Mapping[str, Any], tier: str, source: Source) -> dict[str, Pool]:
    top, sizes = _TOP, content
    if tier != _CUSTOM:
        top, sizes = tier, _TIERS[tier]
        for key in content:
            if key.endswith(("Type", "Count")):
                raise UserError(f"{_TOP}.{key}: only with scaleTier: CUSTOM, and it is {tier}; write CUSTOM")
    pools = {}
    for role, prefix in _PREFIXES.items():
        machine, counted, config = f"{top}.{prefix}Type", f"{prefix}Count", content.get(f"{prefix}Config", {})
        kind, count = sizes.get(f"{prefix}Type"), 1 if role == "chief" else sizes.get(counted, 0)
        if str(count) != "0":
            if not kind:
                raise UserError(
                    f"{machine}: missing, but needed for {count} x {role}; add '{prefix}Type: n1-standard-4'"
                )
            gpus = f"{_TOP}.{prefix}Config.acceleratorConfig"
            places = {"machine": machine, "replicas": f"{top}.{counted}", "accelerator": gpus, "": f"{gpus}: "}
            with _places(places):
                pools[role] = _pool(kind, count, config, machine, source)
        elif kind or config:
            source.notes.append(
                f"{_TOP}.{prefix}{'Type' if kind else 'Config'}: not used, as without {counted}, or with 0, there are none, as "
                f"on AI Platform; add '{counted}: 1' if one is meant"
            )
    if "ps" in pools and "worker" not in pools:
        pools["worker"] = pools["chief"]
        source.replacements.append(
            f"{top}.workerCount: none, and TensorFlow 2's chief hands out the work without training; one like the chief is "
            "added"
        )
    return pools


def _pool(kind: Any, count: Any, config: Mapping[str, Any], place: str, source: Source) -> Pool:
    """Returns a pool of machines that are offered; values of the file are not checked before."""
    is_legacy = str(kind) in LEGACY_MACHINES
    if not is_legacy and "-" not in str(kind):
        raise UserError(f"machine: {unknown('machine type', str(kind), LEGACY_MACHINES)}")
    was = dict(LEGACY_MACHINES[kind] if is_legacy else {"machine": kind})
    if "acceleratorConfig" in config:
        was["accelerator"] = config["acceleratorConfig"]
    now = replacement(was)
    pool = Pool.read({**now, "replicas": count})
    if now != was:
        what = f"{kind} was {_shape(was)}" if is_legacy else _shape(was)
        source.replacements.append(f"{place}: {what}, which is no longer offered; replaced by {pool.shape}")
    elif is_legacy:
        source.notes.append(f"{place}: {kind} is {pool.shape}")
    return pool


def replacement(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is offered in place of a machine and its GPUs: the same, or others with the same number of GPUs.

    Args:
      spec: Machine and accelerator as in a cluster file, unchecked.
    """
    new = {**spec, "machine": _replaced(spec["machine"])}
    gpus = spec.get("accelerator")
    if isinstance(gpus, Mapping) and gpus.get("type") != _replaced(gpus.get("type")):
        if str(gpus.get("count")) == "8":
            return _TABLE["eight_gpus"]
        new["accelerator"] = {**gpus, "type": _replaced(gpus["type"])}
    return new


def _replaced(name: Any) -> Any:
    return REPLACED_BY.get(str(name), name)


def _shape(spec: Mapping[str, Any]) -> str:
    gpus = spec.get("accelerator")
    return f"{spec['machine']} with {gpus.get('count', 1)} {gpus['type']}" if gpus else spec["machine"]


def _default_strategy(pools: Mapping[str, Pool]) -> str:
    if "ps" in pools:
        return "parameter_server"
    if "worker" in pools:
        return "multi_worker_mirrored"
    return "mirrored" if pools["chief"].gpus > 1 else "one_device"


def _fit_gpus(pools: dict[str, Any], source: Source) -> None:
    """Leaves each pool the GPUs that the strategy computes on, and gives synchronous replicas equal numbers."""
    chosen = pools["strategy"]
    fitted = {}
    for role in ("chief", "worker", "ps"):
        pool = pools.get(role)
        if chosen != "parameter_server" or not pool or pool.gpus <= most_gpus(chosen, role):
            continue
        gpu, offers = pool.accelerator.type, MACHINES[pool.machine].gpus
        if role == "worker":
            machine = pool.machine if 1 in offers[gpu] else _TABLE["one_gpu"].get(gpu, pool.machine)
            replicas = pool.replicas * pool.gpus
            fitted[role] = {"machine": machine, "replicas": replicas, "accelerator": {"type": gpu}}
        else:
            machine = pool.machine if "" in offers else _TABLE["without_gpus"]
            fitted[role] = {"machine": machine, "replicas": pool.replicas}
    if chosen == "multi_worker_mirrored" and "worker" in pools:
        fewer, more = sorted(("chief", "worker"), key=lambda role: pools[role].gpus)
        if pools[fewer].gpus < pools[more].gpus:
            fitted[fewer] = {**pools[more].model_dump(), "replicas": pools[fewer].replicas}
    reason = "replicas that compute every step together have equal GPUs"
    if chosen == "parameter_server":
        reason = "its job has parameter servers, and it computes on no more GPUs"
    for role, values in fitted.items():
        old = pools[role]
        new = pools[role] = Pool.read(values)
        source.replacements.append(
            f"{role}: {old.replicas} x {old.shape} become {new.replicas} x {new.shape}, as {reason}"
        )


def _translate_disks(content: Mapping[str, Any], source: Source) -> None:
    """Makes the one disk that all pools have in ours: the largest and fastest of those in the file."""
    disks = set()
    for role in source.values.keys() & _PREFIXES:
        place = f"{_PREFIXES[role]}Config"
        config = content.get(place, {}).get("diskConfig", {})
        theirs = {"type": "bootDiskType", "size_gb": "bootDiskSizeGb"}
        with _places({ours: f"{_TOP}.{place}.diskConfig.{key}" for ours, key in theirs.items()}):
            disks.add(Disk.read({ours: config[key] for ours, key in theirs.items() if key in config}))
    disk = Disk(type=min(disk.type for disk in disks), size_gb=max(disk.size_gb for disk in disks))
    if disks != {Disk()}:
        source.values["disk"] = disk
    if len(disks) > 1:
        source.replacements.append(
            f"{_TOP}.diskConfig: differs between the pools; all get {disk.size_gb} GB of {disk.type}"
        )

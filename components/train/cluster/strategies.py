"""Which strategy a cluster trains with, where its file leaves it open or a flag asks for another.

What AI Platform's users asked for and TensorFlow 2 cannot use with it is replaced by the nearest that it can, with notes.

    source = resolve(read("STANDARD_1"), flags=["--sync"])
    source.values["strategy"] == "multi_worker_mirrored"  # and the parameter servers are gone
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from common.cli import Parser
from common.errors import UserError
from components.train.cluster.machines import offered
from components.train.cluster.notes import Note, Source
from components.train.cluster.rules import most_gpus
from trainer.cluster.member import ROLES

SYNC = "--sync"
# Machines of AI Platform's files in jobs with parameter servers: a chief or ps in place of one that always has GPUs, and
# by GPU a worker in place of one that has several.
_WITHOUT_GPUS = "n1-standard-16"
_WITH_ONE_GPU = {
    "NVIDIA_L4": "g2-standard-12",
    "NVIDIA_TESLA_A100": "a2-highgpu-1g",
    "NVIDIA_TESLA_P4": "n1-standard-8",
    "NVIDIA_TESLA_T4": "n1-standard-8",
    "NVIDIA_TESLA_V100": "n1-standard-8",
}


def resolve(source: Source, flags: Sequence[str] = (), strategy: str | None = None) -> Source:
    """The source with its strategy decided.

    A flag decides first, then the file, then the pools: with parameter servers `parameter_server`, else with workers
    `multi_worker_mirrored`, else `mirrored` with several GPUs and `one_device` without. TensorFlow 2 has no synchronous
    training with parameter servers: asked for it, the workers reduce gradients among themselves, which computes the
    same update, and the parameter servers go. Of the trainer's flags `--sync` and, where the file names no strategy,
    `--strategy` count; `strategy` overrides all of them. What contradicts the pools is refused.
    """
    values = source.values
    if not isinstance(values, Mapping):
        return source  # Whoever reads the values refuses that.
    own = values.get("strategy") if source.ours else _inferred(values)
    asked, by = strategy, "--strategy"
    if not asked and not source.ours:
        asked = named(flags)
    if SYNC in flags:
        if asked == "parameter_server":
            raise UserError("--sync: parameter servers train asynchronously in TensorFlow 2; leave one of the two out")
        if not asked and own == "parameter_server":
            asked, by = "multi_worker_mirrored", SYNC
    notes = source.notes
    if flags and source.args and tuple(flags) != source.args:
        notes = (*notes, Note(place="trainingInput.args", text="not used, as flags are given to the trainer here"))
    if asked == "parameter_server" and "ps" not in values:
        raise UserError(f"--strategy {asked}: {source.name} has no parameter servers; add some, or choose another")
    if asked in ("one_device", "mirrored") and "worker" in values:
        raise UserError(f"--strategy {asked} is for one machine, and {source.name} has workers; remove them there")
    if asked and asked != "parameter_server" and "ps" in values:
        values = {role: pool for role, pool in values.items() if role != "ps"}
        what = "the parameter servers are dropped: synchronous workers reduce gradients among themselves"
        notes = (*notes, Note(place=by, text=f"{what}, which computes the same update", changes=True))
    if not source.ours:
        values, more = _fit(values, asked or own)
        notes = (*notes, *more)
    elif asked:
        values = {**values, "strategy": asked}
    return dataclasses.replace(source, values=values, notes=notes)


def named(flags: Sequence[str]) -> str | None:
    """The strategy that the trainer's flags name, if they do."""
    parser = Parser(prog="python -m trainer.task", add_help=False)
    parser.add_argument("--strategy")
    return parser.parse_known_args(list(flags))[0].strategy


def job_flags(source: Source, flags: Sequence[str]) -> list[str]:
    """The flags of the trainer: those given, else the file's; `--sync` is the strategy's by now."""
    chosen = [flag for flag in (flags or source.args) if flag != SYNC]
    if source.job_dir and not any(flag.startswith(("--job-dir", "--job_dir")) for flag in chosen):
        chosen += ["--job-dir", source.job_dir]
    return chosen


def _inferred(values: Mapping[str, Any]) -> str:
    if "ps" in values:
        return "parameter_server"
    if "worker" in values:
        return "multi_worker_mirrored"
    return "mirrored" if values["chief"].get("accelerator", {}).get("count", 0) > 1 else "one_device"


def _fit(values: Mapping[str, Any], strategy: str) -> tuple[dict[str, Any], list[Note]]:
    """A translated cluster whose GPUs and disk keep to the rules of its strategy, and what was replaced for that."""
    fitted: dict[str, Any] = {**values, "strategy": strategy}
    notes = []
    for role in (role for role in ROLES if "accelerator" in fitted.get(role, ())):
        pool = fitted[role]
        machine, gpu, count = pool["machine"], pool["accelerator"]["type"], pool["accelerator"]["count"]
        most = most_gpus(strategy, role)
        if most == 0:
            machine = _WITHOUT_GPUS if offered()[machine].carries_gpus else machine
            fitted[role] = {**pool, "machine": machine}
            del fitted[role]["accelerator"]
            text = f"its {count} {gpu} are left out, as this role computes nothing; it runs on {machine}"
            notes.append(Note(place=role, text=text, changes=True))
        elif role == "worker" and most == 1 < count:
            machine = machine if 1 in offered()[machine].gpus[gpu] else _WITH_ONE_GPU.get(gpu, machine)
            replicas = pool["replicas"] * count
            fitted[role] = {"machine": machine, "replicas": replicas, "accelerator": {"type": gpu, "count": 1}}
            text = f"{pool['replicas']} with {count} GPUs become {replicas} {machine} with 1 {gpu}: each computes on 1"
            notes.append(Note(place=role, text=text, changes=True))
    return fitted, notes + _alike(fitted) + _disk(fitted)


def _alike(values: dict[str, Any]) -> list[Note]:
    """Chief and workers that compute every step together all get the GPUs of the one that has more."""
    if values["strategy"] != "multi_worker_mirrored" or "worker" not in values:
        return []
    gpus = {role: values[role].get("accelerator", {}).get("count", 0) for role in ("chief", "worker")}
    fewer, more = sorted(gpus, key=gpus.__getitem__)
    if gpus[fewer] == gpus[more]:
        return []
    values[fewer] = {**values[fewer], **{key: values[more][key] for key in ("machine", "accelerator")}}
    text = f"it gets the machine and the {gpus[more]} GPUs of the {more}, as all compute every step together"
    return [Note(place=fewer, text=text, changes=True)]


def _disk(values: dict[str, Any]) -> list[Note]:
    """The disk becomes one that all machines boot from; where there is none, each machine has its own."""
    machines = [offered()[values[role]["machine"]] for role in ROLES if role in values]
    bootable = [kind for kind in machines[0].boot_disks if all(kind in each.boot_disks for each in machines)]
    disk = values.get("disk")
    if not disk or disk["type"] in bootable:
        return []
    if bootable:
        values["disk"] = {**disk, "type": bootable[0]}
    else:
        del values["disk"]
    instead = bootable[0] if bootable else "each machine's own"
    text = f"not every machine boots from {disk['type']}; replaced by {instead}"
    return [Note(place="disk", text=text, changes=True)]

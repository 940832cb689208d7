"""What AI Platform's users asked for and TensorFlow 2 cannot use, replaced by the nearest that it can, with notes.

values, notes = fit({"chief": {"machine": "n1-standard-4"}, "worker": ..., "ps": ...}, "parameter_server")
"""

from collections.abc import Mapping
from typing import Any

from components.train.cluster.machines import nearest, offered, without_gpus
from components.train.cluster.notes import Note
from components.train.cluster.rules import most_gpus
from trainer.replicas.member import ROLES


def fit(values: Mapping[str, Any], strategy: str) -> tuple[dict[str, Any], list[Note]]:
    """A translated cluster whose GPUs and disk keep to the rules of its strategy, and what was replaced for that."""
    fitted: dict[str, Any] = {**values, "strategy": strategy}
    notes = []
    for role in (role for role in ROLES if "accelerator" in fitted.get(role, ())):
        pool = fitted[role]
        machine, gpu, count = pool["machine"], pool["accelerator"]["type"], pool["accelerator"]["count"]
        most = most_gpus(strategy, role)
        if most == 0:
            fitted[role] = {**pool, "machine": without_gpus(machine)}
            del fitted[role]["accelerator"]
            text = f"its {count} {gpu} are left out, as this role computes nothing; it runs on {without_gpus(machine)}"
            notes.append(Note(place=role, text=text, changes=True))
        elif role == "worker" and most == 1 < count:
            machine, gpu, _ = nearest(machine, gpu, 1)
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

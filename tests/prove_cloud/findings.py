"""What the proving jobs have shown, an answer to each item of docs/CLOUD.md that names a check of here."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

Notes = dict[str, list[dict[str, Any]]]  # by `REPLICA-KIND`, of each attempt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """What came of the requests."""

    states: dict[str, str]  # of each job by name, with its error
    notes: dict[str, Notes]  # of each custom job
    executed: int  # how often the step that may be cached was
    location: str  # of the bucket


def filled(text: str, seen: Seen) -> str:
    """The numbered items of a text, each with the answer of the check that it names."""
    items = re.findall(r"^\d+\. .*(?:\n {3,}.*)*", text, re.MULTILINE)
    return "\n".join(f"{item}\n   **Found: {_answer(item, seen)}.**" for item in items)


def _answer(item: str, seen: Seen) -> str:
    name = re.search(r"Shown by `?(\w+)`?", item)[1]
    if name not in CHECKS:
        return "not looked at"
    try:
        return CHECKS[name](seen).rstrip(".")
    except (KeyError, IndexError):
        return f"not shown, jobs: {', '.join(f'{name} {state}' for name, state in seen.states.items())}"


def allowed(seen: Seen) -> str:
    silent = [f"{name} ({state})" for name, state in seen.states.items() if not seen.notes.get(name, True)]
    return f"no, nothing came from {', '.join(silent)}" if silent else "yes, all jobs ran and wrote to the bucket"


def image(seen: Seen) -> str:
    lacking = _saw(seen, "lone")["lacking"]
    return f"no: {lacking}" if lacking else "yes, every module of the project was imported"


def ends_for_good(seen: Seen) -> str:
    tries = len(seen.notes["lone"]["workerpool0-0-began"])
    return f"{'yes' if tries == 1 else 'no'}, attempts: {tries}, {seen.states['lone']}"


def tried_again(seen: Seen) -> str:
    return "; ".join(
        f"{name}: " + ", ".join(f"{r.removesuffix('-began')} {len(each)} attempts" for r, each in notes.items() if "-began" in r)
        + f", {seen.states[name]}"
        for name, notes in seen.notes.items()
        if name.startswith("restart")
    )  # fmt: skip


def comes_back(seen: Seen) -> str:
    notes = seen.notes["restart-one"]
    first, second = notes["workerpool1-0-began"][:2]
    late_s = second["time"] - notes["workerpool1-0-saw"][0]["time"]
    same = {key: "the same" if first[key] == second[key] else "another" for key in ("address", "boot")}
    return f"{same['address']} name and {same['boot']} machine {late_s:.0f} s after the end"


def mount(seen: Seen) -> str:
    return "; ".join(f"{what}: {told}" for what, told in _saw(seen, "lone")["mount"].items())


def network(seen: Seen) -> str:
    chief, worker = (seen.notes["restart-all"][f"workerpool{i}-0-began"][0] for i in range(2))
    machines = "two machines" if chief["boot"] != worker["boot"] else "one machine"
    reached = [seen.notes["restart-all"][f"workerpool{i}-0-saw"][0]["reached"] for i in range(2)]
    return f"{machines}, {chief['address']} and {worker['address']}; reached: {reached}"


def pipeline(seen: Seen) -> str:
    cached = "the second run took the step from the cache" if seen.executed == 1 else f"executed {seen.executed} times"
    return f"{cached}; a step that fails once, with set_retry: {seen.states['pipeline-1']}"


def large_request(seen: Seen) -> str:
    return f"1.5 MB of arguments: {seen.states['large']}"


def store(seen: Seen) -> str:
    told = [_saw(seen, "restart-all", pool)["store"] for pool in range(2)]
    times = ", ".join(f"{each['median_ms']:.0f} ms (worst {each['worst_ms']:.0f})" for each in told)
    return f"bucket in {seen.location}; a read took {times}; {sum(each['told_429'] for each in told)} of 400 told 429"


def gpus(seen: Seen) -> str:
    return f"TensorFlow finds {_saw(seen, 'gpu')['gpus']}, 1 was asked for"


def _saw(seen: Seen, job: str, pool: int = 0) -> dict[str, Any]:
    return seen.notes[job][f"workerpool{pool}-0-saw"][-1]


CHECKS: dict[str, Callable[[Seen], str]] = {
    check.__name__: check
    for check in (
        allowed, image, ends_for_good, tried_again, comes_back, mount, network, pipeline, large_request, store, gpus
    )
}  # fmt: skip

"""Cluster files with one mistake each, made from good ones: what the file says, and the place that a message must name.

Synopsis:

    for text, place in bad_files(): ...
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

SOURCES = Path(__file__).parent / "sources"
OURS = """
strategy: parameter_server
chief: {machine: n1-standard-4}
worker: {machine: n1-standard-8, replicas: 4, accelerator: {type: NVIDIA_TESLA_T4, count: 1}}
ps: {machine: n1-highmem-2, replicas: 2}
evaluator: {machine: n1-standard-4, replicas: 1}
disk: {type: pd-standard, size_gb: 200}
scheduling: {strategy: SPOT, timeout: 1h, max_restarts: 3}
"""
GOOD = (OURS, (SOURCES / "everything.yaml").read_text())
# Texts that mean nothing to a launcher, so that any text is as good as another.
FREE = (
    *("jobId", "labels", "team", "imageUri", "jobDir", "region", "packageUris", "pythonModule", "runtimeVersion"),
    *("pythonVersion", "serviceAccount", "network", "containerCommand", "maxWaitTime", "priority"),
)
NOT_MAPPINGS = (None, 7, "x", ["x"], True)
NOT_TEXTS = (None, 7, True, [], {}, "", " ", "no-such-thing")
NOT_NUMBERS = (None, "many", -1, 1.5, True, [1], {}, float("inf"), 10**30)
REQUIRED = (
    *("strategy", "chief", "worker", "ps", "masterType", "workerType", "parameterServerType", "evaluatorType"),
    "type",
)

Path_ = tuple[str, ...]


def bad_files() -> Iterator[tuple[str, str]]:
    """Text of each file, and the place of its mistake."""
    for good in GOOD:
        document = yaml.safe_load(good)
        for path, value in entries(document):
            if not set(path[:-1]).isdisjoint(FREE):
                continue
            yield from with_other_values(document, path, value)
            yield changed(document, path, renamed=path[-1] + "x"), where(path[:-1])
            if path[-1] in REQUIRED and path[-2:] not in (("disk", "type"), ("scheduling", "strategy")):
                yield changed(document, path), path[-1]
            line = f"{path[-1]}: "
            if path[-1] not in FREE and good.count(line) == 1:  # The key once more, on the same level.
                yield good.replace(line, f"{line}1, {line}" if len(path) > 1 and "{" in good else line * 2), "line"
        yield from broken(good)


def entries(document: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every key of every mapping, with its path."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield (*path, key), value
            yield from entries(value, (*path, key))


def with_other_values(document: Any, path: Path_, value: Any) -> Iterator[tuple[str, str]]:
    """The file with what cannot be in this place."""
    if path[-1] in FREE:
        return
    if isinstance(value, dict):
        others: tuple = NOT_MAPPINGS
    elif isinstance(value, bool):
        others = (None, 7, "maybe", [], {})
    elif isinstance(value, int) or path[-1] in ("workerCount", "count"):
        others = NOT_NUMBERS
    elif isinstance(value, list):
        others = (None, 7, "x", {}, [None], [[1]], [True])
    else:
        others = NOT_TEXTS
    for other in others:
        yield changed(document, path, value=other), where(path)


def changed(document: Any, path: Path_, *, renamed: str | None = None, **value: Any) -> str:
    """The document as YAML, with the entry at `path` renamed, given another value, or removed."""
    document = copy.deepcopy(document)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    old = parent.pop(path[-1])
    if renamed or value:
        parent[renamed or path[-1]] = value.get("value", old)
    return yaml.safe_dump(document, sort_keys=False)


def where(path: Path_) -> str:
    return ".".join(path) or "top level"


def broken(good: str) -> Iterator[tuple[str, str]]:
    """What is no YAML, or no mapping."""
    for text in (good + "  {", good + "\n\t- x", good + "\n---\nmore: 1", good.replace(":", "", 1) + "]"):
        yield text, "line"
    yield "[strategy, chief]", "top level"
    yield json.dumps([yaml.safe_load(good)]), "top level"

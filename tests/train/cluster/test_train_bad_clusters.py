"""Tests of cluster files with one mistake each: every key with wrong values, misspelt, and left out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.errors import UserError
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import load_cluster

OURS = """
strategy: parameter_server
chief: {machine: n1-standard-4, alternatives: [{machine: e2-standard-4}]}
worker: {machine: n1-standard-8, replicas: 4, accelerator: {type: NVIDIA_TESLA_T4, count: 1}}
ps: {machine: n1-highmem-2, replicas: 2}
evaluator: {machine: n1-standard-4, replicas: 1}
disk: {type: pd-standard, size_gb: 200}
scheduling: {strategy: SPOT, timeout: 1h, max_restarts: 3}
"""
ROOT = Path(__file__).parents[3]
THEIRS = (Path(__file__).parents[1] / "sources" / "everything.yaml").read_text()
# Wrong values by the type of the right one.
WRONG: dict[type, tuple] = {
    dict: (None, 7, ["x"]),
    str: (None, 7, {}, " ", "no-such-thing"),
    int: (None, "many", -1, 1.5, True, 10**30),
    list: (None, "x", [None]),
}
# Any text is as good as another for these: they mean nothing to a launcher.
FREE = [
    "jobId",
    "labels",
    "imageUri",
    "jobDir",
    "region",
    "packageUris",
    "pythonModule",
    "runtimeVersion",
    "useChiefInTfConfig",
    "pythonVersion",
    "serviceAccount",
    "network",
    "containerCommand",
    "maxWaitTime",
    "priority",
]
NEEDED = [
    "strategy",
    "chief",
    "worker",
    "ps",
    "masterType",
    "workerType",
    "parameterServerType",
    "evaluatorType",
]


def mappings(
    document: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], dict[Any, Any]]]:
    """Yields each mapping of the document with its path."""
    if isinstance(document, dict):
        yield path, document
        for key, value in document.items():
            if key not in FREE:
                yield from mappings(value, (*path, key))


def mistakes(path: tuple[str, ...], key: str, value: Any) -> Iterator[tuple[dict[Any, Any], str]]:
    """Yields what to write in place of an entry, and the place that the error names."""
    if key not in FREE:
        kind = (
            int if str(value).isdigit() else type(value)
        )  # AI Platform writes numbers as texts too.
        for other in WRONG[kind]:
            yield {key: other}, ".".join((*path, key))
    for name in (f"{key}x", 7, None):
        yield {name: value}, ".".join(path) or "top level"
    if key in NEEDED and path in ((), ("trainingInput",)):
        yield {}, key


def bad_files(document: Any) -> Iterator[tuple[str, str]]:
    """Yields the content of each file with one mistake, and the place that the error names."""
    for path, mapping in list(mappings(document)):
        for key, value in list(mapping.items()):
            del mapping[key]
            for entry, place in mistakes(path, key, value):
                mapping |= entry
                yield yaml.safe_dump(document), place
                for name in entry:
                    del mapping[name]
            mapping[key] = value


@pytest.mark.parametrize("good", [OURS, THEIRS], ids=["ours", "AI Platform's"])
def test_each_mistake_is_refused_by_place(tmp_path: Path, good: str):
    """Raises a `UserError` for each mistake, where anything else would be a traceback."""
    path = tmp_path / "cluster.yaml"
    path.write_text(good)
    load_cluster(path)
    bad = list(bad_files(yaml.safe_load(good)))
    assert len(bad) > 100
    for content, place in bad:
        path.write_text(content)
        with pytest.raises(UserError) as caught:
            load_cluster(path)
        message = str(caught.value).removeprefix(f"{path}: ")
        assert place in message, content
        assert len(message.splitlines()) == 1
        assert 20 < len(message) < 600


@pytest.mark.parametrize(
    "path", sorted((ROOT / "clusters").glob("*.yaml")), ids=lambda path: path.stem
)
def test_shipped_file_is_valid(path: Path):
    assert Cluster.from_json(load_cluster(path).to_json())
    assert path.read_text().startswith("# ")

"""Good cluster files with one mistake each: every key with values that it cannot have, misspelt, and left out."""

import copy
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
# By the type that is right.
WRONG: dict[type, tuple] = {
    dict: (None, 7, ["x"]),
    str: (None, 7, {}, " ", "no-such-thing"),
    int: (None, "many", -1, 1.5, True, 10**30),
    list: (None, "x", [None]),
}
# Texts that mean nothing to a launcher, so that any text is as good as another.
FREE = {
    *("jobId", "labels", "imageUri", "jobDir", "region", "packageUris", "pythonModule", "runtimeVersion"),
    *(
        "useChiefInTfConfig",
        "pythonVersion",
        "serviceAccount",
        "network",
        "containerCommand",
        "maxWaitTime",
        "priority",
    ),
}

NEEDED = ("strategy", "chief", "worker", "ps", "masterType", "workerType", "parameterServerType", "evaluatorType")


def entries(document: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key of every mapping, with its path."""
    for key, value in document.items() if isinstance(document, dict) else ():
        yield (*path, key), value
        if key not in FREE:
            yield from entries(value, (*path, key))


def bad_files(good: str) -> Iterator[tuple[Any, str]]:
    """The content of each file, and the place of its mistake."""
    document = yaml.safe_load(good)
    for path, value in entries(document):
        kind = int if str(value).isdigit() else type(value)  # AI Platform writes numbers as texts too
        for other in () if path[-1] in FREE else WRONG[kind]:
            yield changed(document, path, {path[-1]: other}), ".".join(path)
        for name in (path[-1] + "x", 7, None):
            yield changed(document, path, {name: value}), ".".join(path[:-1]) or "top level"
        if ".".join(path).removeprefix("trainingInput.") in NEEDED:
            yield changed(document, path, {}), path[-1]


def changed(document: Any, path: tuple[str, ...], new: dict[Any, Any]) -> Any:
    """The document with an entry replaced by others."""
    document = parent = copy.deepcopy(document)
    for key in path[:-1]:
        parent = parent[key]
    del parent[path[-1]]
    parent.update(new)
    return document


@pytest.mark.parametrize("good", [OURS, THEIRS], ids=["ours", "AI Platform's"])
def test_each_mistake_is_refused_naming_place(tmp_path: Path, good: str):
    """Anything but a UserError would be a traceback."""
    path = tmp_path / "cluster.yaml"
    path.write_text(good)
    load_cluster(path)
    bad = list(bad_files(good))
    assert len(bad) > 100
    for content, place in bad:
        path.write_text(yaml.safe_dump(content))
        with pytest.raises(UserError) as caught:
            load_cluster(path)
        message = str(caught.value).removeprefix(f"{path}: ")
        assert place in message, content
        assert len(message.splitlines()) == 1
        assert 20 < len(message) < 600


@pytest.mark.parametrize("path", sorted((ROOT / "clusters").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_file_is_valid_and_commented(path: Path):
    assert Cluster.from_json(load_cluster(path).to_json())
    assert path.read_text().startswith("# ")

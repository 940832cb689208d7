"""Tests of cluster files with one mistake each: every key with wrong values, or misspelt."""

import re
from pathlib import Path

import pytest
import yaml

from components.train.cluster.lookup import load_cluster
from tests.errors import user_error

OURS = """
strategy: parameter_server
chief: {machine: n1-standard-4, alternatives: [{machine: e2-standard-4}]}
worker: {machine: n1-standard-8, replicas: 4, accelerator: {type: NVIDIA_TESLA_T4, count: 1}}
ps: {machine: n1-highmem-2, replicas: 2}
evaluator: {machine: n1-standard-4, replicas: 1}
disk: {type: pd-standard, size_gb: 200}
pod_template: {spec: {priorityClassName: high}}
scheduling: {strategy: SPOT, timeout: 1h, max_restarts: 3}
"""
THEIRS = (Path(__file__).parents[1] / "sources" / "everything.yaml").read_text()
# Wrong values by the type of the right one.
WRONG: dict[type, tuple] = {
    dict: (None, 7, ["x"]),
    str: (None, 7, {}, " ", "no-such-thing"),
    int: (None, "many", -1, 1.5, True, 10**30),
    list: (None, "x", [None]),
}
# Any text is as good as another for these: they mean nothing to a launcher.
FREE = (
    "jobId|labels|imageUri|jobDir|region|packageUris|pythonModule|runtimeVersion|pythonVersion|"
    "useChiefInTfConfig|serviceAccount|network|containerCommand|maxWaitTime|priority"
)


def bad_files(document, part, place=""):
    """Yields the document with a mistake in this part, and the place that the error names."""
    for key, value in [*part.items()] if isinstance(part, dict) else []:
        inner = f"{place}.{key}".lstrip(".")
        is_free = re.fullmatch(FREE, key)
        # Kubernetes alone knows what a template may have.
        yield from bad_files(document, {} if is_free or key == "pod_template" else value, inner)
        # AI Platform writes numbers as texts too.
        kind = int if str(value).isdigit() else type(value)
        wrong = [] if is_free else [({key: other}, inner) for other in WRONG[kind]]
        wrong += [({name: value}, place or "top level") for name in (f"{key}x", 7, None)]
        del part[key]
        for entry, error_place in wrong:
            part |= entry
            yield yaml.safe_dump(document), error_place
            for name in entry:
                del part[name]
        part[key] = value


@pytest.mark.parametrize("good", [OURS, THEIRS], ids=["ours", "AI Platform's"])
@pytest.mark.long
def test_each_mistake_is_refused_by_place(tmp_path, good):
    """Raises a `UserError` for each mistake, where anything else would be a traceback."""
    path = tmp_path / "cluster.yaml"
    path.write_text(good)
    load_cluster(path)
    document = yaml.safe_load(good)
    bad = list(bad_files(document, document))
    assert len(bad) > 100
    for content, place in bad:
        path.write_text(content)
        with user_error() as caught:
            load_cluster(path)
        assert place in str(caught.value).removeprefix(f"{path}: "), content

"""Finds what would not run the same everywhere.

Each rule is a trap that was fallen into: kfp.local 2.17 or the Google components 2.22 accept the
spec and then do something else. What they do only at run time (a parameter that is NaN) no spec
shows; what the compiler refuses, or what the run of a test shows (a condition that is false here),
needs no rule. A spec whose file's name ends with `-local.yaml` runs here only, one with
`-kubeflow.yaml` on Kubeflow Pipelines, any other also on Vertex AI.
"""

import re
from collections.abc import Iterable
from typing import Any

import yaml

from pipelines.training import BACKENDS

# All that kfp.local fills in.
_FILLED = re.compile(
    r"(inputs|outputs|outputMetadataUri|pipeline_((job|task)_(name|uuid)|root))\b(?!.*json_escape)"
)
_GOOGLE = "google_cloud_pipeline_components.container."


def lint(spec, backend="vertex"):
    """Returns the faults of a pipeline spec for a back end of the pipeline, a line each."""
    components, executors = spec.get("components", {}), spec["deploymentSpec"]["executors"]
    dags = {"root": spec["root"], **{name: c for name, c in components.items() if "dag" in c}}
    faults = [f"root: {problem}" for problem in _inputs(spec["root"].get("inputDefinitions", {}))]
    for dag_name, dag in dags.items():
        for name, task in dag["dag"]["tasks"].items():
            component = components[task["componentRef"]["name"]]
            container = executors.get(component.get("executorLabel"), {}).get("container", {})
            problems = (
                *_given(task, component),
                *_launched(task, _command(container)),
            )
            faults.extend(f"{dag_name}/{name}: {problem}" for problem in problems)
    for name, executor in executors.items():
        faults.extend(f"{name}: {problem}" for problem in _executor(executor, backend))
    return faults


def _inputs(definitions):
    for name, definition in definitions.get("parameters", {}).items():
        yield from _constant(name, definition.get("defaultValue"))


def _given(task, component):
    parameters = task.get("inputs", {}).get("parameters", {})
    for name, value in parameters.items():
        yield from _constant(name, value.get("runtimeValue", {}).get("constant"))
    if "executorLabel" in component:
        for name, definition in component.get("inputDefinitions", {}).get("parameters", {}).items():
            if name not in parameters:
                yield from (
                    f"{p} (by default; pass another)"
                    for p in _constant(name, definition.get("defaultValue"))
                )


def _constant(name, value):
    yield from (f"{name!r}: {problem}" for problem in _text(str(value)))
    if isinstance(value, dict | list):
        kind = type(value).__name__
        parts = list(_parts(value))
        if any("{{$." in str(part) for part in parts):
            yield f"{name!r} holds a parameter within a {kind}; pass it whole"
        for part in parts:
            if (
                isinstance(part, int | float)
                and not isinstance(part, bool)
                and float(part).is_integer()
            ):
                yield f"{name!r} holds {part:.0f} in a {kind}, a float here; pass text"


def _text(text):
    for placeholder in re.findall(r"\{\{\$\.(.*?)\}\}", text):
        if not _FILLED.match(placeholder):
            yield f"placeholder {placeholder} is not filled in here; pass a parameter"


def _launched(task, command):
    """Returns the job that Google's launchers make of a task."""
    parameters = task.get("inputs", {}).get("parameters", {})
    if _GOOGLE in command:
        for name, value in parameters.items():
            parts = _parts(value.get("runtimeValue", {}).get("constant"))
            if not all(part or part is None for part in parts):
                yield f"{name!r} holds something empty, so pools shift; leave it out"
    if f"{_GOOGLE}v1.custom_job" in command:
        if "retryPolicy" in task:
            yield "set_retry looks at the failed job once more; submit the run again"
        if "restart_job_on_worker_restart" not in parameters:
            yield "replicas wait for a lost one; pass restart_job_on_worker_restart"


def _executor(executor, backend):
    if "container" not in executor:
        return  # An importer.
    container = executor["container"]
    command, image = _command(container), container["image"]
    for part in (*container.get("command", []), *container.get("args", [])):
        yield from _text(part)
    if "pip install" in command:
        yield "installs packages when it starts; put them into the image"
    if _GOOGLE not in command and backend != "local" and "@sha256:" not in image:
        yield f"image {image} can be moved under a running schedule; give it by digest"


def _command(container):
    return " ".join([*container.get("command", []), *container.get("args", [])])


def _parts(value):
    """All that is inside a list or dictionary, at any depth."""
    inside: Iterable[Any] = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    for part in inside:
        yield part
        yield from _parts(part)


def lint_file(path):
    """Returns the faults of a compiled file, a line each."""
    spec, *_ = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    backend = path.stem.rpartition("-")[2]
    problems = lint(spec, backend if backend in BACKENDS else "vertex")
    return [f"{path.name}: {problem}" for problem in problems]

"""Finds in a compiled spec what would not run the same here and on Vertex AI: `python -m tests.lint.specs [SPEC...]`.

Without arguments it compiles both specs and looks at them. Each rule is a trap that was fallen into: kfp.local 2.17
or the Google components 2.22 accept the spec and then do something else.
"""

from __future__ import annotations

import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import yaml

from pipelines.compile import compile_specs

_IMAGE = "python-lint@sha256:" + "0" * 64
# Only Vertex resolves these; kfp.local ends in an IndexError.
_VERTEX_ONLY = re.compile(
    r"\{\{\$\.pipeline_(job_resource_name|job_create_time_utc|job_schedule_time_utc|google_cloud_project_id"
    r"|google_cloud_location|persistent_resource_id|encryption_key_name)\}\}"
)


def lint(spec: dict[str, Any]) -> list[str]:
    """What is wrong with a pipeline spec, a line each."""
    components = spec.get("components", {})
    dags = {"root": spec["root"], **{name: c for name, c in components.items() if "dag" in c}}
    tasks = {name for dag in dags.values() for name in dag["dag"]["tasks"]}
    found = []
    for dag_name, dag in dags.items():
        for name, task in dag["dag"]["tasks"].items():
            for problem in (*_conditions(task, tasks), *_placeholders(task, components[task["componentRef"]["name"]])):
                found.append(f"{dag_name}/{name}: {problem}")
    for name, executor in spec["deploymentSpec"]["executors"].items():
        found.extend(f"{name}: {problem}" for problem in _executor(executor))
    return found


def _conditions(task: dict[str, Any], tasks: set[str]) -> Iterator[str]:
    condition = task.get("triggerPolicy", {}).get("condition", "")
    for channel in re.findall(r"pipelinechannel--([\w-]+)", condition):
        if any(channel.startswith(f"{name}-") for name in tasks) and not channel.endswith("-Output"):
            yield f"condition on the named output {channel!r} is silently false here; use a step with one return value"
    for value in re.findall(r"[!=]= '(.*)'", condition):
        if "'" in value:
            yield f"condition on a value with a quote, {value!r}, is silently false here"


def _placeholders(task: dict[str, Any], component: dict[str, Any]) -> Iterator[str]:
    given = task.get("inputs", {}).get("parameters", {})
    yield from (f"placeholder {p} is not resolved here" for p in _vertex_only(given))
    for name, value in given.items():
        constant = value.get("runtimeValue", {}).get("constant")
        if isinstance(constant, dict | list) and "{{$." in str(constant):
            yield f"{name!r} holds a parameter within a {type(constant).__name__}, not filled in here; pass it whole"
    if "executorLabel" not in component:
        return
    for name, definition in component.get("inputDefinitions", {}).get("parameters", {}).items():
        if name not in given and _vertex_only(definition.get("defaultValue")):
            yield f"{name!r} defaults to a placeholder that is not resolved here; pass it"


def _executor(executor: dict[str, Any]) -> Iterator[str]:
    if importer := executor.get("importer"):
        if "{{channel" in str(importer.get("artifactUri")):
            yield "an importer's URI made of parameters is not expanded; give it a task's output"
        return
    container = executor["container"]
    command = " ".join([*container.get("command", []), *container.get("args", [])])
    if "pip install" in command:
        yield "installs packages when it starts; put them into the image"
    if "json_escape" in command:
        yield "placeholder json_escape is not resolved here"
    if "google-cloud-pipeline-components" not in container["image"] and "kfp.dsl.executor_main" not in command:
        yield "is a container component; kfp's SubprocessRunner runs none"


def _vertex_only(value: Any) -> list[str]:
    return [m[0] for m in _VERTEX_ONLY.finditer(str(value))]


def main(paths: list[str]) -> int:
    """Prints what is wrong; returns 1 if anything is."""
    with tempfile.TemporaryDirectory() as directory:
        specs = [pathlib.Path(p) for p in paths] or compile_specs(_IMAGE, directory)
        found = [f"{path.name}: {p}" for path in specs for p in lint(yaml.safe_load(path.read_text(encoding="utf-8")))]
    print("\n".join(found), end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

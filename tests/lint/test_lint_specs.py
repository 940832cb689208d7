"""Every trap as a tiny pipeline: the lint refuses what kfp compiles, and says what to write instead."""

import functools
import pathlib
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from google_cloud_pipeline_components.types import artifact_types
from google_cloud_pipeline_components.v1.custom_job import (
    CustomTrainingJobOp,
    create_custom_training_job_from_component,
)
from google_cloud_pipeline_components.v1.dataflow import DataflowPythonJobOp
from google_cloud_pipeline_components.v1.model import ModelDeleteOp
from google_cloud_pipeline_components.v1.vertex_notification_email import VertexNotificationEmailOp
from kfp import compiler, dsl

from tests.lint import specs

warnings.simplefilter("ignore", FutureWarning)
IMAGE = f"r/i@sha256:{'0' * 64}"
WORKSPACE = dsl.PipelineConfig(workspace=dsl.WorkspaceConfig(size="1Gi"))
# Of a custom job, what our pipeline gives and no rule objects to.
PLACE = {"project": "p", "location": "l"}
PLAIN = {**PLACE, "display_name": "d", "persistent_resource_id": "", "encryption_spec_key_name": ""}
RESTARTS = {**PLAIN, "restart_job_on_worker_restart": True}


def step(function: Callable, **options: object) -> Callable[..., dsl.PipelineTask]:
    return dsl.component(function, **{"base_image": IMAGE, "install_kfp_package": False, **options})


@step
def word() -> str:
    return "a"


@step
def share() -> float:
    return 0.5


@step
def two() -> NamedTuple("Two", [("x", str), ("y", str)]):
    return "a", "b"


@step
def data(made: dsl.Output[dsl.Dataset]):
    pass


def eat(value: str):
    pass


def eat_things(value: dict = {"a": "b"}, values: list = ["a"]):  # noqa: B006 (what kfp reads of it is the value)
    pass


def eat_data(value: dsl.Input[dsl.Dataset]):
    pass


@dsl.container_component
def container():
    return dsl.ContainerSpec(image=IMAGE, command=["true"])


@dsl.container_component
def located():
    return dsl.ContainerSpec(image=IMAGE, command=["echo"], args=["{{$.pipeline_google_cloud_location}}"])


taste, taste_things, taste_data = step(eat), step(eat_things), step(eat_data)


def branches(one: Callable, other: Callable) -> list[dsl.PipelineTask]:
    with dsl.If(word().output == "a"):
        first = one()
    with dsl.Else():
        second = other()
    return [first, second]


def when(condition: Any) -> None:
    with dsl.If(condition):
        word()


def part_of_an_item():
    with dsl.ParallelFor([{"a": "x"}]) as item:
        when(item.a == "x")


def one_of_several():
    one, other = branches(two, word)
    taste(value=dsl.OneOf(one.outputs["x"], other.output))


def one_of_artifacts():
    one, other = branches(data, data)
    taste_data(value=dsl.OneOf(one.outputs["made"], other.outputs["made"]))


def whole_number_by_default(counts: list = [2]):  # noqa: B006
    taste_things(values=counts)


def placeholder_by_default(project: str = "{{$.pipeline_google_cloud_project_id}}"):
    taste(value=project)


def artifact_given(given: dsl.Input[dsl.Dataset]):
    taste_data(value=given)


def model_deleted():
    model = dsl.importer(artifact_uri="a", artifact_class=artifact_types.VertexModel)
    ModelDeleteOp(model=model.output)


def mail():
    with dsl.ExitHandler(VertexNotificationEmailOp(recipients=["a@b.c"])):
        word()


# By name the pipeline, and what is told of it.
TRAPS: dict[str, tuple[Callable, str]] = {
    "named output": (lambda: when(two().outputs["y"] == "b"), "condition on the named output 'two-y'"),
    "part of an item": (part_of_an_item, "'loop-item-param-1-subvar-a', a part of a loop's item"),
    "quote": (lambda: when(word().output == "it's"), "use a word"),
    "operator in a text": (lambda: when(word().output == "a && b"), "use a word"),
    "backslash": (lambda: when(word().output == "a\\n"), "use a word"),
    "one of several": (one_of_several, "OneOf over the named output"),
    "one of artifacts": (one_of_artifacts, "OneOf over artifacts"),
    "parameter in a dictionary": (
        lambda: taste_things(value={"run": word().output}),
        "'value' holds a parameter within a dict",
    ),
    "parameter in a list": (
        lambda: taste_things(values=[f"--run={word().output}"]),
        "'values' holds a parameter within a list",
    ),
    "whole number in a dictionary": (
        lambda: taste_things(value={"deep": [{"count": 3}]}),
        "'value' holds 3 within a dict, a float here",
    ),
    "whole number by default": (whole_number_by_default, "root: 'counts' holds 2 within a list, a float here"),
    "placeholder": (
        lambda: taste(value=f"at {dsl.PIPELINE_JOB_RESOURCE_NAME_PLACEHOLDER}"),
        "placeholder pipeline_job_resource_name is not filled in here",
    ),
    "placeholder by default": (
        placeholder_by_default,
        "root: 'project': placeholder pipeline_google_cloud_project_id is not filled in here",
    ),
    "placeholder of Google's": (
        lambda: CustomTrainingJobOp(**{**RESTARTS, "persistent_resource_id": "{{$.pipeline_persistent_resource_id}}"}),
        "'persistent_resource_id': placeholder pipeline_persistent_resource_id is not filled in here; pass",
    ),
    "escaped": (
        lambda: create_custom_training_job_from_component(word)(**RESTARTS),
        "json_escape[1] is not filled in here",
    ),
    "placeholder in a command": (lambda: located(), "placeholder pipeline_google_cloud_location is not filled in here"),
    "workspace": (lambda: word(), "a part for one platform"),
    "large text": (lambda: taste(value="x" * 130_000), "bytes do not fit into a command"),
    "artifact given": (artifact_given, "kfp.local gives no artifact 'given'"),
    "URI of parts": (
        lambda: dsl.importer(artifact_uri=f"gs://b/{word().output}", artifact_class=dsl.Dataset),
        "an importer's URI made of parameters",
    ),
    "packages": (lambda: step(eat, packages_to_install=["a"])(value="a"), "installs packages when it starts"),
    "kfp's package": (lambda: step(eat, install_kfp_package=True)(value="a"), "installs packages when it starts"),
    "image of a parameter": (lambda: word().set_container_image(word().output), "known when it runs"),
    "CPUs of a parameter": (lambda: word().set_cpu_limit(word().output), "known when it runs"),
    "tag": (lambda: step(eat, base_image="r/i:tag")(value="a"), "image r/i:tag can be moved"),
    "container component": (lambda: container(), "is a container component"),
    "containerized": (lambda: step(eat, target_image=IMAGE)(value="a"), "is a container component"),
    "Google's component-local": (lambda: CustomTrainingJobOp(**RESTARTS), "is a container component"),
    "Google's artifact-local": (
        lambda: dsl.importer(artifact_uri="gs://b/m", artifact_class=artifact_types.UnmanagedContainerModel),
        "is a plain Artifact here",
    ),
    "gap in the pools": (
        lambda: CustomTrainingJobOp(**RESTARTS, worker_pool_specs=[{"replica_count": "1"}, {}]),
        "'worker_pool_specs' holds something empty",
    ),
    "retry": (
        lambda: CustomTrainingJobOp(**RESTARTS).set_retry(2),
        "set_retry has the launcher look at the job that has failed",
    ),
    "longest wait": (
        lambda: CustomTrainingJobOp(**RESTARTS, strategy="SPOT", max_wait_duration="60s"),
        "max_wait_duration is dropped",
    ),
    "restart not said": (lambda: CustomTrainingJobOp(**PLAIN), "pass restart_job_on_worker_restart"),
    "model deleted": (model_deleted, "deletes all versions of the model"),
    "mail": (mail, "fails everywhere but on Vertex AI"),
    "Dataflow": (
        lambda: DataflowPythonJobOp(python_module_path="a", temp_location="b", **PLACE),
        "use DataflowFlexTemplateJobOp",
    ),
}


def linted(name: str, function: Callable, directory: pathlib.Path) -> list[str]:
    config = {"pipeline_config": WORKSPACE} if name == "workspace" else {}
    path = directory / f"{re.sub('[^a-z]+', '-', name.lower())}.yaml"

    @functools.wraps(function)
    def pipeline(*given: Any) -> None:  # a pipeline returns nothing
        function(*given)

    compiler.Compiler().compile(dsl.pipeline(pipeline, name=path.stem, **config), str(path))
    return specs.lint_file(path)


@pytest.mark.parametrize("name", TRAPS)
def test_a_pipeline_that_would_not_run_the_same_is_refused(name, tmp_path):
    function, told = TRAPS[name]
    found = linted(name, function, tmp_path)
    assert told in found[0] and len({line.split(": ")[1] for line in found}) == 1, found  # nothing else is wrong
    assert all("; " in line.partition(": ")[2] for line in found), "says what to write instead"


def harmless(run: str, count: int = 2, sure: bool = True, labels: dict = {}):  # noqa: B006
    """What looks like the traps and is none."""
    one, other = branches(word, word)
    chosen = taste(value=dsl.OneOf(one.output, other.output)).set_cpu_limit("2").set_retry(2)
    chosen.set_env_variable("A", "b")
    with dsl.If(word().output == "it is"):
        taste(value=f"{run} in {dsl.PIPELINE_JOB_NAME_PLACEHOLDER} at {dsl.PIPELINE_ROOT_PLACEHOLDER}")
    with dsl.Elif(share().output > 1e-3):
        taste_things(value={"rate": 0.5, "on": True, "text": "3"}, values=[])
    with dsl.Elif(count == -3), dsl.If(sure == True):  # noqa: E712 (kfp reads the comparison)
        taste_things(value=labels)
    with dsl.ParallelFor([1, 2]) as item, dsl.If(item == 1):
        word()
    CustomTrainingJobOp(**RESTARTS, strategy="FLEX_START", max_wait_duration="60s", labels=labels)
    dsl.importer(artifact_uri=word().output, artifact_class=artifact_types.UnmanagedContainerModel)


def test_what_only_looks_like_a_trap_is_let_through(tmp_path):
    assert linted("harmless", harmless, tmp_path) == []


def test_the_projects_own_specs_have_no_trap(capsys):
    assert specs.main([]) == 0 and capsys.readouterr().out == ""

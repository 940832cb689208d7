"""Every trap as a tiny pipeline: the lint refuses what kfp compiles, and says what to write instead."""

import pathlib
import warnings
from collections.abc import Callable
from typing import NamedTuple

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
PLAIN = {
    "display_name": "d",
    "persistent_resource_id": "",
    "encryption_spec_key_name": "",
    "project": "p",
    "location": "l",
}
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


# What is told, and the pipeline.
TRAPS: list[tuple[str, Callable]] = []


def trap(told: str) -> Callable[[Callable], Callable]:
    def add(function: Callable) -> Callable:
        TRAPS.append((told, function))
        return function

    return add


@trap("condition on the named output 'two-y'")
def named_output():
    with dsl.If(two().outputs["y"] == "b"):
        word()


@trap("'loop-item-param-1-subvar-a', a part of a loop's item")
def part_of_an_item():
    with dsl.ParallelFor([{"a": "x"}]) as item, dsl.If(item.a == "x"):
        word()


@trap("use a word")
def quote():
    with dsl.If(word().output == "it's"):
        word()


@trap("use a word")
def operator_in_a_text():
    with dsl.If(word().output == "a && b"):
        word()


@trap("use a word")
def backslash():
    with dsl.If(word().output == "a\\n"):
        word()


@trap("OneOf over the named output")
def one_of_several():
    one, other = branches(two, word)
    taste(value=dsl.OneOf(one.outputs["x"], other.output))


@trap("OneOf over artifacts")
def one_of_artifacts():
    one, other = branches(data, data)
    taste_data(value=dsl.OneOf(one.outputs["made"], other.outputs["made"]))


@trap("'value' holds a parameter within a dict")
def parameter_in_a_dictionary(run: str):
    taste_things(value={"run": run})


@trap("'values' holds a parameter within a list")
def parameter_in_a_list():
    taste_things(values=[f"--run={word().output}"])


@trap("'value' holds 3 within a dict, a float here")
def whole_number_in_a_dictionary():
    taste_things(value={"deep": [{"count": 3}]})


@trap("root: 'counts' holds 2 within a list, a float here")
def whole_number_by_default(counts: list = [2]):  # noqa: B006
    taste_things(values=counts)


@trap("placeholder pipeline_job_resource_name is not filled in here")
def placeholder():
    taste(value=f"at {dsl.PIPELINE_JOB_RESOURCE_NAME_PLACEHOLDER}")


@trap("placeholder pipeline_job_create_time_utc is not filled in here")
def placeholder_of_time():
    taste(value=dsl.PIPELINE_JOB_CREATE_TIME_UTC_PLACEHOLDER)


@trap("root: 'project': placeholder pipeline_google_cloud_project_id is not filled in here")
def placeholder_by_default(project: str = "{{$.pipeline_google_cloud_project_id}}"):
    taste(value=project)


@trap("'persistent_resource_id': placeholder pipeline_persistent_resource_id is not filled in here; pass")
def placeholder_of_googles():
    CustomTrainingJobOp(**{name: value for name, value in RESTARTS.items() if name != "persistent_resource_id"})


@trap("json_escape[1] is not filled in here")
def json_escape():
    create_custom_training_job_from_component(word)(**RESTARTS)


@trap("placeholder pipeline_google_cloud_location is not filled in here")
def placeholder_in_a_command():
    located()


@trap("a part for one platform")
def workspace():
    word()


@trap("bytes do not fit into a command")
def large_text():
    taste(value="x" * 130_000)


@trap("kfp.local gives no artifact 'given'")
def artifact_given(given: dsl.Input[dsl.Dataset]):
    taste_data(value=given)


@trap("an importer's URI made of parameters")
def uri_of_parts(name: str):
    dsl.importer(artifact_uri=f"gs://b/{name}", artifact_class=dsl.Dataset)


@trap("installs packages when it starts")
def packages():
    step(eat, packages_to_install=["requests"])(value="a")


@trap("installs packages when it starts")
def kfp_package():
    step(eat, install_kfp_package=True)(value="a")


@trap("known when it runs")
def image_of_a_parameter(image: str):
    word().set_container_image(image)


@trap("known when it runs")
def cpus_of_a_parameter(cpus: str):
    word().set_cpu_limit(cpus)


@trap("image r/i:tag can be moved")
def tag():
    step(eat, base_image="r/i:tag")(value="a")


@trap("is a container component")
def container_component():
    container()


@trap("is a container component")
def containerized():
    step(eat, target_image=IMAGE)(value="a")


@trap("is a container component")
def googles_component_local():
    CustomTrainingJobOp(**RESTARTS)


@trap("is a plain Artifact here")
def googles_artifact_local():
    dsl.importer(artifact_uri="gs://b/m", artifact_class=artifact_types.UnmanagedContainerModel)


@trap("'worker_pool_specs' holds something empty")
def gap_in_the_pools():
    CustomTrainingJobOp(**RESTARTS, worker_pool_specs=[{"replica_count": "1"}, {}, {"replica_count": "2"}])


@trap("set_retry has the launcher look at the job that has failed")
def retry():
    CustomTrainingJobOp(**RESTARTS).set_retry(2)


@trap("max_wait_duration is dropped")
def max_wait():
    CustomTrainingJobOp(**RESTARTS, strategy="SPOT", max_wait_duration="60s")


@trap("pass restart_job_on_worker_restart")
def restart_not_said():
    CustomTrainingJobOp(**PLAIN)


@trap("deletes all versions of the model")
def model_deleted():
    model = dsl.importer(artifact_uri="a", artifact_class=artifact_types.VertexModel)
    ModelDeleteOp(model=model.output)


@trap("fails everywhere but on Vertex AI")
def mail():
    with dsl.ExitHandler(VertexNotificationEmailOp(recipients=["a@b.c"])):
        word()


@trap("use DataflowFlexTemplateJobOp")
def dataflow():
    DataflowPythonJobOp(python_module_path="gs://b/m.py", temp_location="gs://b/t", project="p", location="l")


def linted(function: Callable, directory: pathlib.Path) -> list[str]:
    name = function.__name__
    config = {"pipeline_config": WORKSPACE} if name == "workspace" else {}
    path = directory / f"{name.replace('_', '-')}.yaml"
    compiler.Compiler().compile(dsl.pipeline(function, name=path.stem, **config), str(path))
    return specs.lint_file(path)


@pytest.mark.parametrize(("told", "function"), [pytest.param(*each, id=each[1].__name__) for each in TRAPS])
def test_a_pipeline_that_would_not_run_the_same_is_refused(told, function, tmp_path):
    found = linted(function, tmp_path)
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
    assert linted(harmless, tmp_path) == []


def test_the_projects_own_specs_have_no_trap(capsys):
    assert specs.main([]) == 0 and capsys.readouterr().out == ""


def after_a_group():
    with dsl.If(word().output == "a") as group:
        word()
    word().after(group)


def loop_over_a_loop():
    with dsl.ParallelFor(["a", "b"]):
        made = word()
    with dsl.ParallelFor(dsl.Collected(made.output)):
        word()


def environment_of_a_parameter(value: str):
    word().set_env_variable("A", value)


@pytest.mark.parametrize("function", [after_a_group, loop_over_a_loop, environment_of_a_parameter])
def test_what_the_lint_leaves_to_the_compiler_does_not_compile(function, tmp_path):
    with pytest.raises((TypeError, ValueError)):
        linted(function, tmp_path)

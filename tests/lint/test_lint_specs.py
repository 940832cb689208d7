"""Every trap as a tiny pipeline: the lint refuses what kfp compiles, and says what to write instead."""

import functools
import pathlib
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
    return dsl.ContainerSpec(
        image=IMAGE, command=["echo"], args=["{{$.pipeline_google_cloud_location}}"]
    )


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


def quoted(text: str) -> Callable:
    return lambda: when(word().output == text)


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


def job(**options: Any) -> dsl.PipelineTask:
    return CustomTrainingJobOp(**{**RESTARTS, **options})


def imported(kind: type[dsl.Artifact], uri: str) -> dsl.PipelineTask:
    return dsl.importer(artifact_uri=uri, artifact_class=kind)


def model_deleted():
    ModelDeleteOp(model=imported(artifact_types.VertexModel, "a").output)


def mail():
    with dsl.ExitHandler(VertexNotificationEmailOp(recipients=["a@b.c"])):
        word()


# By what is told the pipelines of which it is.
TRAPS: dict[str, list[Callable]] = {
    "condition on the named output 'two-y'": [lambda: when(two().outputs["y"] == "b")],
    "use a word": [quoted("it's"), quoted("a && b"), quoted("a\\n")],
    "OneOf over the named output": [one_of_several],
    "OneOf over artifacts": [one_of_artifacts],
    "'value' holds a parameter within a dict": [lambda: taste_things(value={"run": word().output})],
    "'values' holds a parameter within a list": [
        lambda: taste_things(values=[f"--run={word().output}"])
    ],
    "'value' holds 3 within a dict, a float here": [
        lambda: taste_things(value={"deep": [{"count": 3}]})
    ],
    "root: 'counts' holds 2 within a list, a float here": [whole_number_by_default],
    "placeholder pipeline_job_resource_name is": [
        lambda: taste(value=f"at {dsl.PIPELINE_JOB_RESOURCE_NAME_PLACEHOLDER}")
    ],
    "root: 'project': placeholder pipeline_google_cloud_project_id is not filled in here": [
        placeholder_by_default
    ],
    "'persistent_resource_id': placeholder pipeline_persistent_resource_id is not filled in here; "
    "pass": [lambda: job(persistent_resource_id="{{$.pipeline_persistent_resource_id}}")],
    "json_escape[1] is not filled in here": [
        lambda: create_custom_training_job_from_component(word)(**RESTARTS)
    ],
    "placeholder pipeline_google_cloud_location is not filled in here": [lambda: located()],
    "a part for one platform": [lambda: word()],
    "bytes do not fit into a command": [lambda: taste(value="x" * 130_000)],
    "kfp.local gives no artifact 'given'": [artifact_given],
    "an importer's URI made of parameters": [
        lambda: imported(dsl.Dataset, f"gs://b/{word().output}")
    ],
    "installs packages when it starts": [
        lambda: step(eat, packages_to_install=["a"])(value="a"),
        lambda: step(eat, install_kfp_package=True)(value="a"),
    ],
    "known when it runs": [
        lambda: word().set_container_image(word().output),
        lambda: word().set_cpu_limit(word().output),
    ],
    "image r/i:tag can be moved": [lambda: step(eat, base_image="r/i:tag")(value="a")],
    "is a container component": [
        lambda: container(),
        lambda: step(eat, target_image=IMAGE)(value="a"),
    ],
    "'worker_pool_specs' holds something empty": [
        lambda: job(worker_pool_specs=[{"replica_count": "1"}, {}])
    ],
    "set_retry has the launcher look at the job that has failed": [lambda: job().set_retry(2)],
    "max_wait_duration is dropped": [lambda: job(strategy="SPOT", max_wait_duration="60s")],
    "pass restart_job_on_worker_restart": [lambda: CustomTrainingJobOp(**PLAIN)],
    "deletes all versions of the model": [model_deleted],
    "fails everywhere but on Vertex AI": [mail],
    "use DataflowFlexTemplateJobOp": [
        lambda: DataflowPythonJobOp(python_module_path="a", temp_location="b", **PLACE)
    ],
}
LOCAL_TRAPS: dict[str, list[Callable]] = {
    "exec-custom-training-job: is a container component": [lambda: job()],
    "is a plain Artifact here": [
        lambda: imported(artifact_types.UnmanagedContainerModel, "gs://b/m")
    ],
}


def linted(
    file: str, function: Callable, directory: pathlib.Path, **config: dsl.PipelineConfig
) -> list[str]:
    @functools.wraps(function)
    def pipeline(*given: Any) -> None:  # a pipeline returns nothing
        function(*given)

    compiler.Compiler().compile(dsl.pipeline(pipeline, name="it", **config), str(directory / file))
    return specs.lint_file(directory / file)


@pytest.mark.parametrize(
    ("file", "told", "function"),
    [
        (file, told, function)
        for file, traps in (("a.yaml", TRAPS), ("a-local.yaml", LOCAL_TRAPS))
        for told, functions in traps.items()
        for function in functions
    ],
)
def test_a_pipeline_that_would_not_run_the_same_is_refused(file, told, function, tmp_path):
    config = {"pipeline_config": WORKSPACE} if "platform" in told else {}
    found = linted(file, function, tmp_path, **config)
    assert told in found[0] and len({line.split(": ")[1] for line in found}) == 1, (
        found
    )  # nothing else is wrong
    assert all("; " in line.partition(": ")[2] for line in found), "says what to write instead"


def harmless(run: str, count: int = 2, sure: bool = True, labels: dict = {}):  # noqa: B006
    """What looks like the traps and is none."""
    one, other = branches(word, word)
    chosen = taste(value=dsl.OneOf(one.output, other.output)).set_cpu_limit("2").set_retry(2)
    chosen.set_env_variable("A", "b")
    with dsl.If(word().output == "it is"):
        taste(
            value=f"{run} in {dsl.PIPELINE_JOB_NAME_PLACEHOLDER} at {dsl.PIPELINE_ROOT_PLACEHOLDER}"
        )
    with dsl.Elif(share().output > 1e-3):
        taste_things(value={"rate": 0.5, "on": True, "text": "3"}, values=[])
    with dsl.Elif(count == -3), dsl.If(sure == True):  # noqa: E712 (kfp reads the comparison)
        taste_things(value=labels)
    job(strategy="FLEX_START", max_wait_duration="60s", labels=labels)
    imported(artifact_types.UnmanagedContainerModel, word().output)


def test_what_only_looks_like_a_trap_is_let_through(tmp_path):
    assert linted("a.yaml", harmless, tmp_path) == []


def test_the_projects_own_specs_have_no_trap(capsys):
    assert specs.main([]) == 0 and capsys.readouterr().out == ""

"""Every trap as a tiny pipeline: the lint refuses what kfp compiles, and says what to write."""

import functools
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from google_cloud_pipeline_components.v1.custom_job import CustomTrainingJobOp
from kfp import compiler, dsl

from components.train.backends.job_settings import JobSettings
from components.train.cluster.lookup import load_cluster
from pipelines.cloud_options import DEFAULT_CLUSTER
from pipelines.compile import compile_specs
from tests.lint import specs

warnings.simplefilter("ignore", FutureWarning)
IMAGE = f"r/i@sha256:{'0' * 64}"
# Of a custom job, what our pipeline gives and no rule objects to.
PLACE = {"project": "p", "location": "l"}
PLAIN = {**PLACE, "display_name": "d", "persistent_resource_id": "", "encryption_spec_key_name": ""}
RESTARTS = {**PLAIN, "restart_job_on_worker_restart": True}


def step(function: Callable, **options: object) -> Callable[..., dsl.PipelineTask]:
    return dsl.component(function, **{"base_image": IMAGE, "install_kfp_package": False, **options})


@step
def word() -> str:
    return "a"


def eat(value: str):
    pass


def eat_things(value: dict = {"a": "b"}, values: list = ["a"]):  # noqa: B006
    pass


taste, taste_things = step(eat), step(eat_things)


def whole_number_by_default(counts: list = [2]):  # noqa: B006
    taste_things(values=counts)


def placeholder_by_default(project: str = "{{$.pipeline_google_cloud_project_id}}"):
    taste(value=project)


def job(**options: Any) -> dsl.PipelineTask:
    return CustomTrainingJobOp(**{**RESTARTS, **options})


# Pipelines by the message that each of them gets.
TRAPS: dict[str, Callable] = {
    "'value' holds a parameter within a dict": lambda: taste_things(value={"run": word().output}),
    "'values' holds a parameter within a list": lambda: taste_things(
        values=[f"--run={word().output}"]
    ),
    "'value' holds 3 in a dict, a float here": lambda: taste_things(value={"deep": [{"count": 3}]}),
    "root: 'counts' holds 2 in a list, a float here": whole_number_by_default,
    "placeholder pipeline_job_resource_name is": lambda: taste(
        value=f"at {dsl.PIPELINE_JOB_RESOURCE_NAME_PLACEHOLDER}"
    ),
    "root: 'project': placeholder pipeline_google_cloud_project_id is not filled in here": (
        placeholder_by_default
    ),
    "'persistent_resource_id': placeholder pipeline_persistent_resource_id is not filled in here; "
    "pass": lambda: job(persistent_resource_id="{{$.pipeline_persistent_resource_id}}"),
    "installs packages when it starts": lambda: step(eat, packages_to_install=["a"])(value="a"),
    "'worker_pool_specs' holds something empty": lambda: job(
        worker_pool_specs=[{"replica_count": "1"}, {}]
    ),
    "image r/i:tag can be moved": lambda: step(eat, base_image="r/i:tag")(value="a"),
    "set_retry looks at the failed job": lambda: job().set_retry(2),
    "pass restart_job_on_worker_restart": lambda: CustomTrainingJobOp(**PLAIN),
}


def linted(function: Callable, directory: pathlib.Path) -> list[str]:
    @functools.wraps(function)
    def pipeline(*given: Any) -> None:  # A pipeline returns nothing.
        function(*given)

    compiler.Compiler().compile(dsl.pipeline(pipeline, name="it"), str(directory / "a.yaml"))
    return specs.lint_file(directory / "a.yaml")


@pytest.mark.parametrize("message", TRAPS)
def test_trap_is_refused(message, tmp_path):
    faults = linted(TRAPS[message], tmp_path)
    assert message in faults[0] and "; " in faults[0]
    assert len({line.split(": ")[1] for line in faults}) == 1, faults  # Nothing else is wrong.


def harmless(run: str, labels: dict = {}):  # noqa: B006
    """Pipeline that looks like the traps and is none."""
    taste(value="a").set_cpu_limit("2").set_retry(2).set_env_variable("A", "b")
    taste(value=f"{run} in {dsl.PIPELINE_JOB_NAME_PLACEHOLDER} at {dsl.PIPELINE_ROOT_PLACEHOLDER}")
    taste_things(value={"rate": 0.5, "on": True, "text": "3"}, values=[])
    job(labels=labels)
    dsl.importer(artifact_uri=word().output, artifact_class=dsl.Dataset)


def test_harmless_pipeline_passes(tmp_path):
    assert linted(harmless, tmp_path) == []


def test_own_specs_have_no_trap(tmp_path):
    job = JobSettings().arguments(load_cluster(DEFAULT_CLUSTER))
    for path in compile_specs(IMAGE, str(tmp_path), job=job):
        assert specs.lint_file(path) == []

"""THE pipeline: convert, plan, train, evaluate, gate, register, promote; cleanup whatever happens.

One definition for this machine and for Vertex AI. Two slots differ between the back ends: how the worker pools start
(`train`), and who looks whether the source has changed: `run.py` here, a step of its own (`digest`) there. All other
steps, conditions and edges are the same.
"""

import types
from collections.abc import Callable, Iterator, Mapping
from graphlib import TopologicalSorter
from typing import Any

from google.protobuf.json_format import MessageToDict
from kfp import dsl
from kfp.dsl import PipelineTask
from kfp.dsl.base_component import BaseComponent

from components.cleanup import component as cleanup_step
from components.convert import component as convert_step
from components.evaluate import component as evaluate_step
from components.evaluate.gate import PROMOTE, REJECT
from components.register import component as register_step
from components.train import component as train_step

NAME = "training"
BACKENDS = ("local", "vertex")


def build(
    backend: str,
    image: str,
    *,
    scheduled: bool = False,
    resources: Mapping[str, tuple[str, str]] = types.MappingProxyType({}),
) -> BaseComponent:
    """The pipeline for one of `BACKENDS`; every step runs in the image, which for Vertex AI is to be given by digest.

    Args:
      backend: Where it runs.
      image: Of the steps.
      scheduled: Whether one submission makes many runs: each has the name that Vertex AI gives it, and `job_dir` is what
        their directories lie in.
      resources: CPUs and memory (`4`, `16G`) by step, where they are not to be what Vertex AI gives by default.
    """

    def step(function: Callable) -> Callable[..., PipelineTask]:
        # Everything a step needs is in the image, so nothing is installed when it starts (12 s a task otherwise).
        made = dsl.component(function, base_image=image, install_kfp_package=False)

        def task(**arguments: Any) -> PipelineTask:
            cpus, memory = resources.get(function.__name__, ("", ""))
            asked = made(**arguments)
            return asked.set_cpu_limit(cpus).set_memory_limit(memory) if cpus else asked

        return task

    # On this machine the notes are of one run: a resume of it takes the steps that are done from there.
    again = backend == "local"
    digest, convert, plan = step(convert_step.digest), step(convert_step.convert), step(train_step.plan)
    evaluate, gate = step(evaluate_step.evaluate), step(evaluate_step.gate)
    promote, cleanup = step(register_step.promote), step(cleanup_step.cleanup)
    train, register = step(train_step.train), step(register_step.register)

    @dsl.pipeline(name=NAME, description="Converts a dataset, trains on a cluster, evaluates, registers, cleans up.")
    def training(
        run_id: str,
        job_dir: str,
        cluster: str,
        trainer_args: list[str],
        convert_args: list[str],
        evaluate_args: list[str],
        schema: str = "",
        source_digest: str = "",
        dataset_dir: str = "",
        registry: str = "registry",
        name: str = "model",
        serving_image: str = "",
        run_dir: str = "",
        log_dir: str = "",
        project: str = "",
        location: str = "",
        job_args: list[str] = [],  # noqa: B006 (what kfp reads of it is the value; so below)
        strategy: str = "STANDARD",
        timeout: str = "604800s",
        max_wait_duration: str = "86400s",
        restart_job_on_worker_restart: bool = False,
        service_account: str = "",
        network: str = "",
        reserved_ip_ranges: list[str] = [],  # noqa: B006
        psc_interface_config: dict = {},  # noqa: B006
        encryption_spec_key_name: str = "",
        tensorboard: str = "",
        persistent_resource_id: str = "",
        enable_web_access: bool = False,
        labels: dict = {},  # noqa: B006
    ) -> None:
        if scheduled:
            run_id = dsl.PIPELINE_JOB_NAME_PLACEHOLDER
            job_dir = f"{job_dir}/{run_id}/job"
        final = cleanup(run_id=run_id, run_dir=run_dir, project=project, location=location)
        final.set_caching_options(False)
        with dsl.ExitHandler(final, name="steps"):
            if backend == "vertex":  # where an edited source is seen by each run of a schedule, too
                looked = digest(convert_args=convert_args, schema=schema).set_caching_options(False)
                source_digest = looked.output
            converted = convert(
                convert_args=convert_args, schema=schema, source_digest=source_digest, directory=dataset_dir
            )
            data = converted.outputs["output"]
            pools = plan(
                cluster=cluster,
                backend=backend,
                image=image,
                trainer_args=trainer_args,
                job_args=job_args,
                job_dir=job_dir,
                evaluate_args=evaluate_args,
                dataset=data,
            ).set_caching_options(again)
            if backend == "vertex":
                from google_cloud_pipeline_components.v1.custom_job import CustomTrainingJobOp

                trained = CustomTrainingJobOp(
                    worker_pool_specs=pools.output,
                    base_output_directory=job_dir,
                    strategy=strategy,
                    timeout=timeout,
                    max_wait_duration=max_wait_duration,
                    restart_job_on_worker_restart=restart_job_on_worker_restart,
                    service_account=service_account,
                    network=network,
                    reserved_ip_ranges=reserved_ip_ranges,
                    psc_interface_config=psc_interface_config,
                    encryption_spec_key_name=encryption_spec_key_name,
                    tensorboard=tensorboard,
                    persistent_resource_id=persistent_resource_id,
                    enable_web_access=enable_web_access,
                    labels=labels,
                    display_name=run_id,
                    project=project,
                    location=location,
                )
            else:
                trained = train(cluster=cluster, worker_pool_specs=pools.output, log_dir=log_dir)
            trained.set_caching_options(again).set_display_name("train")
            judged = evaluate(job_dir=job_dir, registry=registry, name=name, evaluate_args=evaluate_args, dataset=data)
            judged.after(trained).set_caching_options(again)
            evaluation = judged.outputs["evaluation"]
            verdict = gate(evaluation=evaluation).set_caching_options(again)
            # A condition may look at a task's only output, and at nothing with a name: kfp.local takes that for False.
            with dsl.If(verdict.output != REJECT, name="accepted"):
                registered = register(
                    job_dir=job_dir,
                    registry=registry,
                    name=name,
                    run_id=run_id,
                    cluster=cluster,
                    image=image,
                    serving_image=serving_image,
                    evaluation=evaluation,
                )
                registered.set_caching_options(again)
                with dsl.If(verdict.output == PROMOTE, name="better"):
                    promoted = promote(registry=registry, name=name, run_id=run_id, evaluation=evaluation)
                    promoted.after(registered).set_caching_options(again)

    return training


def step_names(pipeline: BaseComponent) -> list[str]:
    """Names of the pipeline's steps in an order in which they run; cleanup waits for all others."""
    spec = MessageToDict(pipeline.pipeline_spec)

    def steps(component: dict[str, Any]) -> Iterator[str]:
        tasks = component["dag"]["tasks"]
        for name in TopologicalSorter({n: tasks[n].get("dependentTasks", ()) for n in sorted(tasks)}).static_order():
            inner = spec["components"][tasks[name]["componentRef"]["name"]]
            if "dag" in inner:
                yield from steps(inner)
            else:
                yield tasks[name]["taskInfo"]["name"]

    return list(steps(spec["root"]))

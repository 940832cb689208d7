"""THE pipeline: convert, plan, train, evaluate, gate, register, promote; cleanup whatever happens.

One definition for this machine and for Vertex AI. One slot differs between the back ends: how the worker pools start
(`train`). All other steps, conditions and edges are the same.
"""

from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from typing import Any

from google.protobuf.json_format import MessageToDict
from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from components.cleanup import component as cleanup_step
from components.convert import component as convert_step
from components.evaluate import component as evaluate_step
from components.evaluate.gate import PROMOTE, REJECT
from components.register import component as register_step
from components.train import component as train_step

NAME = "training"
BACKENDS = ("local", "vertex")


def build(backend: str, image: str) -> BaseComponent:
    """The pipeline for one of `BACKENDS`; every step runs in the image, which for Vertex AI is to be given by digest."""

    def step(function: Callable) -> BaseComponent:
        # Everything a step needs is in the image, so nothing is installed when it starts (12 s a task otherwise).
        return dsl.component(function, base_image=image, install_kfp_package=False)

    # On this machine the notes are of one run: a resume of it takes the steps that are done from there.
    again = backend == "local"
    convert, plan = step(convert_step.convert), step(train_step.plan)
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
        scheduling_strategy: str = "STANDARD",
        timeout: str = "604800s",
        restart_all: bool = False,
        labels: dict = {},  # noqa: B006 (what kfp reads of it is the value)
    ) -> None:
        final = cleanup(run_id=run_id, run_dir=run_dir, project=project, location=location)
        final.set_caching_options(False)
        with dsl.ExitHandler(final, name="steps"):
            converted = convert(
                convert_args=convert_args, schema=schema, source_digest=source_digest, directory=dataset_dir
            )
            data = converted.outputs["output"]
            pools = plan(
                cluster=cluster, backend=backend, image=image, trainer_args=trainer_args, job_dir=job_dir, dataset=data
            ).set_caching_options(again)
            if backend == "vertex":
                from google_cloud_pipeline_components.v1.custom_job import CustomTrainingJobOp

                trained = CustomTrainingJobOp(
                    worker_pool_specs=pools.output,
                    base_output_directory=job_dir,
                    strategy=scheduling_strategy,
                    timeout=timeout,
                    restart_job_on_worker_restart=restart_all,
                    display_name=run_id,
                    labels=labels,
                    project=project,
                    location=location,
                    # The defaults of these two are placeholders that only Vertex resolves.
                    persistent_resource_id="",
                    encryption_spec_key_name="",
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

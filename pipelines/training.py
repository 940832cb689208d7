"""The pipeline: convert, plan, train, evaluate, gate, register, promote, predict, cleanup.

One definition serves this machine, Vertex AI, and Kubeflow Pipelines on any Kubernetes. They differ
in what starts the worker pools (`train`), in what predicts (`predict`), and in what names the
directories: `run.py` on this machine, a step of its own (`locate`) elsewhere.

Directories travel between steps as texts, and lie where all steps reach them. Artifacts are files
that people look at.
"""

import types
from collections.abc import Mapping, Sequence
from typing import Any

from kfp import dsl
from kfp.dsl.base_component import BaseComponent

from components.cleanup.component import cleanup
from components.convert.component import convert, locate
from components.evaluate.component import evaluate, gate
from components.evaluate.gate import PROMOTE, REJECT
from components.predict.component import predict
from components.register.component import promote, register
from components.register.serving import MODEL_ID_PREFIX
from components.train.component import plan, train

NAME = "training"
BACKENDS = ("local", "vertex", "kubeflow")
STEPS = (locate, convert, plan, train, evaluate, gate, register, promote, predict, cleanup)
LOCAL_STEPS = (train, predict)  # On Vertex AI these are Google's components.
# Arguments that a training job and a batch prediction have in common.
_OF_EVERY_JOB = {"labels", "service_account", "encryption_spec_key_name"}
_BATCH_MACHINES = {
    "machine_type": "n1-standard-4",
    "starting_replica_count": 1,
    "max_replica_count": 4,
}
_NONE: Mapping[str, Any] = types.MappingProxyType({})


def build(
    backend: str,
    image: str,
    *,
    job: Mapping[str, Any] = _NONE,
    job_args: Sequence[str] = (),
    is_template: bool = False,
    resources: Mapping[str, tuple[str, str]] = _NONE,
    claim: str = "",
) -> BaseComponent:
    """Returns the pipeline for a back end.

    Args:
      backend: `local`, `vertex` or `kubeflow`.
      image: Container image of the steps; for Vertex AI by digest.
      job: Arguments of `CustomTrainingJobOp`, as `JobSettings` makes them; only with `vertex`. The
        batch prediction takes labels, service account and key from them.
      job_args: The same settings as flags, for the step `plan`.
      is_template: Whether the spec is for many runs. The server then names each run, which gets a
        directory of its own below `job_dir`.
      resources: CPUs and memory by step, such as `("4", "16G")`. Other steps have Vertex AI's
        defaults.
      claim: `NAME:PATH`, a persistent volume claim that all steps mount at a path; only
        with `kubeflow`.
    """
    # All that a step needs is in the image. To install kfp when a step starts would take 12 s.
    by_name = {
        f.__name__: dsl.component(f, base_image=image, install_kfp_package=False) for f in STEPS
    }
    steps = types.SimpleNamespace(**by_name)
    is_local, is_vertex = backend == "local", backend == "vertex"
    launcher = launcher_of(image, claim) if backend == "kubeflow" else []

    @dsl.pipeline(
        name=NAME,
        description="Converts a dataset, trains on a cluster, evaluates, registers, cleans up.",
    )
    def training(
        job_dir: str, cluster: str, trainer_args: list[str], convert_args: list[str],
        evaluate_args: list[str], run_id: str = "", schema: str = "", dataset_dir: str = "",
        registry: str = "registry", name: str = "model", run_dir: str = "",
        project: str = "", location: str = "", train_args: list[str] = launcher,
        predict_source: list[str] = [], should_predict: bool = False,  # noqa: B006
    ) -> None:  # fmt: skip
        if is_template and not is_local:
            # On Kubeflow Pipelines several runs may have the same name.
            run_id = (
                dsl.PIPELINE_JOB_NAME_PLACEHOLDER if is_vertex else dsl.PIPELINE_JOB_ID_PLACEHOLDER
            )
        place = {"project": project, "location": location}
        model = {"registry": registry, "name": name}
        training_dir = {"job_dir": job_dir, "run_folder": run_id if is_template else ""}
        cleaned = steps.cleanup(
            run_id=run_id, run_dir=run_dir, train_args=train_args, **training_dir, **place
        ).set_caching_options(False)
        tasks = [cleaned]
        with dsl.ExitHandler(cleaned, name="steps"):
            source = {"convert_args": convert_args, "schema": schema}
            # In a step, the source is looked at when the run begins, also if many runs are started
            # from one template.
            if not is_local:
                located = steps.locate(**source, datasets=dataset_dir, **training_dir)
                tasks.append(located.set_caching_options(False))
                dataset_dir, job_dir = located.outputs["dataset"], located.outputs["job_dir"]
            converted = steps.convert(**source, directory=dataset_dir)
            # On this machine the step itself sees soon whether the directory is still complete.
            converted.set_caching_options(not is_local)
            data = {
                "dataset": converted.outputs["Output"],
                "evaluate_args": evaluate_args,
                "job_dir": job_dir,
            }
            trainer = {"trainer_args": trainer_args, "job_args": list(job_args)}
            planned = steps.plan(cluster=cluster, backend=backend, image=image, **trainer, **data)
            if not is_vertex:
                trained = steps.train(
                    cluster=cluster, worker_pool_specs=planned.output, train_args=train_args
                )
            else:
                from google_cloud_pipeline_components.v1.custom_job import CustomTrainingJobOp

                output = {"base_output_directory": job_dir, "display_name": run_id}
                trained = CustomTrainingJobOp(
                    **job, worker_pool_specs=planned.output, **output, **place
                )
            trained.set_display_name("train")
            evaluated = steps.evaluate(**model, **data).after(trained)
            evaluation = {"evaluation": evaluated.outputs["evaluation"]}
            verdict = steps.gate(**evaluation)
            # Conditions only look at the output of tasks with a single one. With a named output,
            # kfp.local takes any condition for False.
            with dsl.If(verdict.output != REJECT, name="accepted"):
                version = {**model, **evaluation, "run_id": run_id}
                registered = steps.register(
                    **version, job_dir=job_dir, cluster=cluster, image=image
                )
                with dsl.If(verdict.output == PROMOTE, name="better"):
                    promoted = steps.promote(**version).after(registered)
                with dsl.If(should_predict == True, name="asked"):  # noqa: E712
                    if not is_vertex:
                        predicted = steps.predict(
                            **model,
                            version=registered.output,
                            source=predict_source,
                            directory=run_dir if is_local else job_dir,
                        )
                    else:
                        from google_cloud_pipeline_components.v1.batch_predict_job import (
                            ModelBatchPredictOp,
                        )
                        from google_cloud_pipeline_components.v1.model import ModelGetOp

                        version_id = f"{MODEL_ID_PREFIX}{name}@{registered.output}"
                        fetched = ModelGetOp(model_name=version_id, **place).set_caching_options(
                            False
                        )
                        predicted = ModelBatchPredictOp(
                            job_display_name=run_id,
                            model=fetched.outputs["model"],
                            gcs_source_uris=predict_source,
                            gcs_destination_output_uri_prefix=f"{job_dir}/predictions",
                            **{key: value for key, value in job.items() if key in _OF_EVERY_JOB},
                            **_BATCH_MACHINES,
                            **place,
                        ).set_display_name("predict")
            for task in (planned, trained, evaluated, verdict, registered, promoted, predicted):
                # On this machine the cache is for the resume of this one run, which skips steps
                # that are done.
                tasks.append(task.set_caching_options(is_local))
        for task in (*tasks, converted):
            if machine := resources.get(task.name):
                task.set_cpu_limit(machine[0]).set_memory_limit(machine[1])
            if claim and backend == "kubeflow":
                claim_name, _, path = claim.partition(":")
                task.platform_config["kubernetes"] = {
                    "pvcMount": [
                        {
                            "pvcNameParameter": {"runtimeValue": {"constant": claim_name}},
                            "mountPath": path,
                        }
                    ]
                }

    return training


def launcher_of(image: str, claim: str) -> list[str]:
    """Returns flags of `components.train` for a JobSet with an image, and a claim as of `build`."""
    flags = ["--backend=kubernetes", f"--image={image}"]
    return [*flags, f"--claim={claim}"] if claim else flags

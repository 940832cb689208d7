"""The pipeline's steps `plan` and, on this machine, `train`."""

from kfp import dsl


def plan(
    cluster: str,
    backend: str,
    image: str,
    trainer_args: list[str],
    job_args: list[str],
    job_dir: str,
    evaluate_args: list[str],
    dataset: dsl.Input[dsl.Dataset],
) -> list:
    """Turns the cluster into worker pools, and refuses now what the training or the evaluation could not do later.

    Args:
      cluster: The cluster file as JSON.
      backend: `vertex`, where every pool needs a machine, or `local`.
      image: Container image of the trainer.
      trainer_args: Flags of the trainer beside those that are known here.
      job_args: `JobSettings` as flags; empty where it is not Vertex AI that runs the job.
      job_dir: Of the training job.
      evaluate_args: Flags of the evaluation.
      dataset: To train on.

    Returns:
      `worker_pool_specs` as a custom job takes them.
    """
    from common.manifest import Manifest
    from components.evaluate.checks import check_column, check_metrics, check_splits
    from components.evaluate.options import Options
    from components.train.backends.job_settings import JobSettings
    from components.train.backends.worker_pools import plan_vertex
    from components.train.cluster.cluster_file import Cluster
    from trainer.options import parse

    manifest = Manifest.load(dataset.path)
    check_splits(manifest)
    evaluation = Options.parse(
        evaluate_args, "components.evaluate", model_dir="-", data_dir="-", output="-"
    )
    for column in (*evaluation.slices, *evaluation.limits.slices):
        check_column(column, manifest)
    settings = JobSettings.parse(job_args, "components.train")
    args = ["--data-dir", dataset.path, "--job-dir", job_dir, *trainer_args]
    options = parse(args).on(manifest)
    is_own_model = ":" in options.model
    if not is_own_model:  # which may have more metrics
        check_metrics(evaluation.limits, manifest.task, manifest.class_names or manifest.targets)
    if is_own_model or options.network or options.init_from:
        from trainer import model_check, warm_start  # which import TensorFlow

        build = options.builder(manifest)
        model = build()
        if options.init_from:
            warm_start.check_unseen(options.init_from, manifest)
            warm_start.take(options.init_from, model)
        model_check.run(build, options, manifest)
    return plan_vertex(
        Cluster.from_json(cluster),
        image,
        args,
        machines=backend == "vertex",
        env=settings.environment,
    )


def train(cluster: str, worker_pool_specs: list, log_dir: str) -> None:
    """Runs the worker pools as processes of this machine.

    Args:
      cluster: The cluster file as JSON.
      worker_pool_specs: As planned.
      log_dir: Directory for the cluster file, and a log and a status file of each replica.
    """
    import os

    from components.train.__main__ import main

    flags = worker_pool_specs[0]["container_spec"]["args"]  # all pools run one command
    os.makedirs(log_dir, exist_ok=True)
    with open(f"{log_dir}/cluster.yaml", "w") as file:
        file.write(cluster)
    if code := main(["--cluster", file.name, "--log-dir", log_dir, "--", *flags]):
        raise SystemExit(code)

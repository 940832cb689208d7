"""The pipeline steps `plan` and, for pipelines that do not run on Vertex AI, `train`."""

from typing import Any


def plan(
    cluster: str,
    backend: str,
    image: str,
    trainer_args: list[str],
    job_args: list[str],
    job_dir: str,
    evaluate_args: list[str],
    dataset: str,
) -> list[dict[str, Any]]:
    """Translates the cluster into worker pools, after a check of what training and evaluation need.

    The check finds mistakes before machines are started: it compares the flags with the dataset,
    and builds the model if it is the user's own, has flags of its own, or starts from other
    weights. A mistake is a UserError.

    Args:
      cluster: The cluster file as JSON.
      backend: `vertex`, where every pool needs a machine type, or another.
      image: Container image of the trainer.
      trainer_args: Flags of the trainer other than `--data-dir` and `--job-dir`.
      job_args: `JobSettings` as flags; empty if the job does not run on Vertex AI.
      job_dir: Directory of the training job.
      evaluate_args: Flags of the evaluation.
      dataset: Directory of the dataset to train on.

    Returns:
      The `worker_pool_specs` of a custom job, one for each pool.
    """
    from common.manifest import Manifest
    from components.evaluate.checks import check_column, check_metrics, check_splits
    from components.evaluate.options import Options
    from components.train.backends.job_settings import JobSettings
    from components.train.backends.worker_pools import plan_vertex
    from components.train.cluster.cluster_file import Cluster
    from trainer.options import parse

    manifest = Manifest.load(dataset)
    check_splits(manifest)
    evaluation = Options.parse(
        evaluate_args, "components.evaluate", model_dir="-", data_dir="-", output="-"
    )
    for column in (*evaluation.slices, *evaluation.limits.slices):
        check_column(column, manifest)
    settings = JobSettings.parse(job_args, "components.train")
    args = ["--data-dir", dataset, "--job-dir", job_dir, *trainer_args]
    options = parse(args).on(manifest)
    is_own_model = ":" in options.model
    if not is_own_model:  # A model of the user's own may have other metrics.
        check_metrics(evaluation.limits, manifest.task, manifest.class_names or manifest.targets)
    if is_own_model or options.network or options.init_from:
        from trainer import model_check, warm_start  # These import TensorFlow.

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


def train(cluster: str, worker_pool_specs: list[dict[str, Any]], train_args: list[str]) -> None:
    """Runs the worker pools, by default as processes of this machine.

    Args:
      cluster: The cluster file as JSON.
      worker_pool_specs: Output of the step `plan`.
      train_args: Flags of `components.train` that say on which back end, and how.

    Raises:
      SystemExit: With the exit code of the job, if that is not 0.
      UserError: If the job cannot be started, for example because another one uses its directory.
      ConnectionError: If a bucket, Google Cloud or Kubernetes does not answer.
    """
    import tempfile

    from components.train.__main__ import main

    flags = worker_pool_specs[0]["container_spec"]["args"]  # All pools run the same command.
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(cluster)
        file.flush()
        if code := main(["--cluster", file.name, *train_args, "--", *flags]):
            raise SystemExit(code)

"""The pipeline's step `convert`, and `locate`, which names its directory."""

from typing import NamedTuple

from kfp import dsl


def locate(
    convert_args: list[str], schema: str, datasets: str, job_dir: str, run_folder: str
) -> NamedTuple("Places", [("dataset", str), ("job_dir", str)]):  # type: ignore[valid-type]
    """Returns the directories of the dataset and of the training; creates neither.

    That of the dataset differs if the source, the flags or the code that converts have changed, so
    that neither a cache nor an existing directory gives an older dataset.

    Args:
      convert_args: Flags of `components.convert`; the steps of any machine can read its sources.
      schema: Text of the schema file of dataset `csv`, `jsonl` or `parquet`; empty for any other.
      datasets: Folder of the datasets that runs share.
      job_dir: Directory of the training, or of the folders of runs.
      run_folder: Folder of the run in `job_dir`, if that has several runs, or empty. The training
        has the directory `job` in it.

    Raises:
      UserError: If a flag is wrong, or the source cannot be read.
      ConnectionError: If the source is in a bucket that does not answer.
    """
    from components.convert.step import locate

    if run_folder:
        job_dir = f"{job_dir}/{run_folder}/job"
    return locate(datasets, convert_args, schema), job_dir


def convert(
    convert_args: list[str], schema: str, directory: str, page: dsl.Output[dsl.HTML]
) -> str:
    """Converts a dataset to TFRecord shards and a manifest, unless another run has.

    Args:
      convert_args: Flags of `components.convert`, without those that other arguments give.
      schema: Text of the schema file of dataset `csv`, `jsonl` or `parquet`; empty for any other.
      directory: Directory of the dataset, which `locate` names.
      page: The dataset's `dataset.html`, where a console shows it.

    Returns:
      The directory.

    Raises:
      UserError: If a flag is wrong, or the dataset cannot be converted.
      ConnectionError: If a store does not answer.
      OSError: If the directory or the page cannot be written.
    """
    from components.convert import step

    with step.parsed_options(convert_args, schema, directory) as options:
        page.metadata.update(step.make(options, page.path))
    return directory

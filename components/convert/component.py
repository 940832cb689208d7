"""The pipeline's step `convert`."""

from kfp import dsl


def digest(convert_args: list[str], schema: str) -> str:
    """Returns the digest of a source, so that the cache serves no conversion of an older state.

    Args:
      convert_args: Flags of `components.convert`; sources lie in a bucket or in BigQuery.
      schema: Text of the schema file of dataset `csv`, `parquet` or `tfrecord`; empty for
        any other.

    Returns:
      SHA-256 (hexadecimal) over names and checksums of the source's files, or over the times of the
      last changes of its tables. No content is read.
    """
    from components.convert.sources.registry import source_digest
    from components.convert.step import parsed_options

    with parsed_options(convert_args, schema, "-") as options:
        return source_digest(options.dataset, options.source, options.schema)


def convert(
    convert_args: list[str],
    schema: str,
    source_digest: str,
    directory: str,
    output: dsl.Output[dsl.Dataset],
    page: dsl.Output[dsl.HTML],
) -> None:
    """Converts a dataset to TFRecord shards and a manifest.

    Args:
      convert_args: Flags of `components.convert`, without those that other arguments give.
      schema: Text of the schema file of dataset `csv`, `parquet` or `tfrecord`; empty for
        any other.
      source_digest: Digest of the source. The step does not use it, but a changed source is not
        taken from the cache.
      directory: Folder in which the runs of this machine share the dataset; empty to write it
        to `output`.
      output: Directory of the dataset.
      page: The dataset's `dataset.html`, where a console shows it.

    Raises:
      UserError: If a flag is wrong, or the dataset cannot be converted.
      ConnectionError: If a store does not answer.
      OSError: If the folder of `directory` or the page cannot be written.
    """
    from components.convert import step

    with step.parsed_options(convert_args, schema, output.path) as options:
        output.uri, described = step.make(options, directory, page.path)
    output.metadata.update(described)

"""The pipeline's step `convert`."""

from kfp import dsl


def digest(convert_args: list[str], schema: str) -> str:
    """What a source is now, so that a conversion of it is taken from the cache only as long as that stays so.

    Args:
      convert_args: Flags of `components.convert`; sources lie in a bucket or in BigQuery.
      schema: Text of the schema file of dataset `csv`, `parquet` or `tfrecord`; empty for any
        other.

    Returns:
      SHA-256 (hexadecimal) over names and checksums of the source's files, or over when its tables
      were changed; nothing is read for that.
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
      convert_args: Flags of `components.convert` beside those that are known here.
      schema: Text of the schema file of dataset `csv`, `parquet` or `tfrecord`; empty for any
        other.
      source_digest: Of what decides the result beside the other arguments: an edited source is not
        taken from the cache.
      directory: Where runs of this machine share the dataset; empty where the step's own place is
        to hold it.
      output: The dataset's directory.
      page: Its `dataset.html`, where a console shows it.
    """
    from components.convert import step

    with step.parsed_options(convert_args, schema, output.path) as options:
        output.uri, described = step.make(options, directory, page.path)
    output.metadata.update(described)

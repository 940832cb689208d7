"""The pipeline's step `convert`."""

from kfp import dsl


def digest(convert_args: list[str], schema: str) -> str:
    """What a source is now, so that a conversion of it is taken from the cache only as long as that stays so.

    Args:
      convert_args: Flags of `components.convert`; sources lie in a bucket or in BigQuery.
      schema: Text of the schema file of dataset `csv`, `parquet` or `tfrecord`; empty for any other.

    Returns:
      SHA-256 (hexadecimal) over names and checksums of the source's files, or over when its tables were changed; nothing is read for that.
    """
    from components.convert.sources.registry import source_digest
    from components.convert.tasks import asked

    with asked(convert_args, schema, "-") as options:
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
      schema: Text of the schema file of dataset `csv`, `parquet` or `tfrecord`; empty for any other.
      source_digest: Of what decides the result beside the other arguments: an edited source is not taken from the cache.
      directory: Where runs of this machine share the dataset; empty where the step's own place is to hold it.
      output: The dataset's directory.
      page: Its `dataset.html`, where a console shows it.
    """
    from components.convert import tasks

    with tasks.asked(convert_args, schema, output.path) as options:
        output.uri, described = tasks.make(options, directory, page.path)
    output.metadata.update(described)


def split(
    convert_args: list[str],
    schema: str,
    source_digest: str,
    directory: str,
    tasks: int,
    work: dsl.Output[dsl.Dataset],
) -> list[str]:
    """Cuts a source for so many tasks that convert it together, in place of the step `convert`, whose arguments it has.

    They leave what they have done for each other in `work`. Returns the shares of those that look at the source before any writes.
    """
    from components.convert import tasks as steps

    return steps.split(convert_args, schema, directory, work.path, tasks=tasks)


def look(share: str, work: dsl.Input[dsl.Dataset]) -> str:
    """Looks at a share of the source, such as 0/3 for the first of three. Returns the share."""
    from components.convert import tasks

    tasks.do("look", share, work.path)
    return share


def settle(looked: list[str], work: dsl.Input[dsl.Dataset]) -> list[str]:
    """Returns the shares of the tasks that write; these wait for those that have looked."""
    from components.convert import tasks

    return tasks.to_write(work.path)


def write(share: str, work: dsl.Input[dsl.Dataset]) -> str:
    """Converts a share of the source. Returns the share."""
    from components.convert import tasks

    tasks.do("write", share, work.path)
    return share


def merge(
    written: list[str],
    directory: str,
    work: dsl.Input[dsl.Dataset],
    output: dsl.Output[dsl.Dataset],
    page: dsl.Output[dsl.HTML],
) -> None:
    """Makes the dataset of what tasks have written; its outputs are those of the step `convert`."""
    from components.convert import tasks

    with tasks.given(work.path) as (_, options):
        output.uri, described = tasks.make(options, directory, page.path)
    output.metadata.update(described)

"""The pipeline's step `convert`."""

from kfp import dsl


def digest(convert_args: list[str], schema: str) -> str:
    """What a source is now, so that a conversion of it is taken from the cache only as long as that stays so.

    Args:
      convert_args: Flags of `components.convert`; sources lie in a bucket, below `/gcs`, or in BigQuery.
      schema: Text of the schema file of dataset `csv`, `parquet` or `tfrecord`; empty for any other.

    Returns:
      SHA-256 (hexadecimal) over names and checksums of the source's files, or over when its tables were changed; nothing is read for that.
    """
    import tempfile

    from components.convert.options import Options
    from components.convert.sources.in_bucket import digest_of_objects
    from components.convert.sources.registry import source_digest

    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".yaml") as file:
        file.write(schema)
        file.flush()
        options = Options.parse(convert_args, "components.convert", schema=file.name if schema else None, output="-")
        if options.source and options.dataset != "bigquery":
            return digest_of_objects([options.source] if isinstance(options.source, str) else options.source)
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
    import contextlib
    import pathlib
    import re
    import shutil
    import tempfile

    from components.convert import store
    from components.convert.convert import convert
    from components.convert.options import Options
    from components.convert.writing.output import PAGE
    from components.files.reading import opened
    from trainer.base.errors import escape_output

    escape_output()

    output.uri = directory or output.uri
    place = pathlib.Path(output.path)
    # Vertex AI mounts the bucket, but a file there cannot be renamed or locked.
    target = re.sub("^/gcs/", "gs://", output.path)
    with tempfile.TemporaryDirectory() as scratch, store.held(place) if directory else contextlib.nullcontext():
        schema_file = pathlib.Path(scratch, "schema.yaml")
        schema_file.write_text(schema, encoding="utf-8")
        options = Options.parse(
            convert_args,
            "components.convert",
            schema=str(schema_file) if schema else None,
            output=target,
        )
        if directory and (manifest := store.ready(place)):
            print(f"{directory}: another run has converted it")
        else:
            manifest = convert(options)
        with opened(f"{target}/{PAGE}") as text, open(page.path, "wb") as copy:
            shutil.copyfileobj(text, copy)
    output.metadata.update(
        name=manifest.name,
        fingerprint=manifest.fingerprint,
        **{split: part.examples for split, part in manifest.splits.items()},
    )

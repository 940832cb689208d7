"""The pipeline's step `convert`."""

from kfp import dsl


def convert(
    dataset: str,
    source: str,
    source_digest: str,
    schema: str,
    image_size: str,
    encoding: str,
    shards: int,
    validation_fraction: float,
    test_fraction: float,
    split_seed: int,
    max_drift: float,
    output: dsl.Output[dsl.Dataset],
    page: dsl.Output[dsl.HTML],
) -> None:
    """Converts a dataset to TFRecord shards and a manifest.

    Args:
      dataset: Name of the dataset.
      source: Directory of its files; empty for an embedded one.
      source_digest: Of what decides the result beside the other arguments: an edited source is not taken from the cache.
      schema: Text of the schema file of dataset `csv` or `tfrecord`; empty for any other.
      image_size: `HEIGHTxWIDTH` that a model gets of image files; empty for their own.
      encoding: How image files are stored, `raw` or `source`; empty to decide by their sizes.
      shards: Files of the training split.
      validation_fraction: Of the training examples that are left for it.
      test_fraction: Of all examples, where the source has no test split.
      split_seed: Decides which examples these are.
      max_drift: How far a feature may be from the training split in another one, from 0 to 1.
      output: The dataset's directory.
      page: Its `dataset.html`, where a console shows it.
    """
    import pathlib
    import shutil
    import tempfile

    from components.convert.convert import convert
    from components.convert.options import Options
    from components.convert.writing.output import PAGE, copy
    from trainer.base.errors import escape_output

    escape_output()

    # Vertex AI mounts the bucket that the path lies in; anywhere else the dataset is written in its place.
    in_bucket = output.path.startswith("/gcs/")
    with tempfile.TemporaryDirectory() as scratch:
        schema_file = pathlib.Path(scratch, "schema.yaml")
        schema_file.write_text(schema, encoding="utf-8")
        options = Options(
            dataset=dataset,
            source=source or None,
            schema=str(schema_file) if schema else None,
            image_size=image_size or None,
            encoding=encoding or None,
            output=f"{scratch}/dataset" if in_bucket else output.path,
            shards=shards,
            validation_fraction=validation_fraction,
            test_fraction=test_fraction,
            split_seed=split_seed,
            max_drift=max_drift,
        )
        manifest = convert(options)
        shutil.copyfile(pathlib.Path(options.output, PAGE), page.path)
        if in_bucket:
            copy(pathlib.Path(options.output), pathlib.Path(output.path))
    output.metadata.update(
        name=manifest.name,
        fingerprint=manifest.fingerprint,
        **{split: part.examples for split, part in manifest.splits.items()},
    )

"""The pipeline's step `convert`."""

from kfp import dsl


def convert(
    dataset: str,
    source: str,
    source_digest: str,
    shards: int,
    validation_fraction: float,
    test_fraction: float,
    seed: int,
    output: dsl.Output[dsl.Dataset],
) -> None:
    """Converts a dataset to TFRecord shards and a manifest.

    Args:
      dataset: Name of the dataset.
      source: Directory of its files; empty for an embedded one.
      source_digest: Of what decides the result beside the other arguments: an edited source is not taken from the cache.
      shards: Files of the training split.
      validation_fraction: Of the training examples that are left for it.
      test_fraction: Of all examples, where the source has no test split.
      seed: Of the splits.
      output: The dataset's directory.
    """
    import pathlib
    import tempfile

    from components.convert.convert import convert
    from components.convert.options import Options
    from components.convert.publish import publish

    # Vertex AI mounts the bucket that the path lies in; anywhere else the dataset is written in its place.
    in_bucket = output.path.startswith("/gcs/")
    with tempfile.TemporaryDirectory() as scratch:
        options = Options(
            dataset=dataset,
            source=source or None,
            output=f"{scratch}/dataset" if in_bucket else output.path,
            shards=shards,
            validation_fraction=validation_fraction,
            test_fraction=test_fraction,
            seed=seed,
        )
        manifest = convert(options)
        if in_bucket:
            publish(pathlib.Path(options.output), pathlib.Path(output.path))
    output.metadata.update(
        name=manifest.name,
        fingerprint=manifest.fingerprint,
        **{split: part.examples for split, part in manifest.splits.items()},
    )

"""The pipeline's step `predict`; on Vertex AI it is a batch prediction."""


def predict(registry: str, name: str, version: str, source: list[str], directory: str) -> None:
    """Writes what a registered version predicts for the rows of files.

    Args:
      registry: Place of the registry.
      name: Name of the model.
      version: Number of the version.
      source: Files or folders, as `--source` of `components.predict`.
      directory: Where to write `predictions.parquet`. Files of an earlier attempt are replaced.
    """
    import glob
    import os

    from components.predict.__main__ import main
    from components.predict.options import RUN_FILE

    output = f"{directory}/{RUN_FILE}"

    for path in glob.glob(f"{glob.escape(os.path.splitext(output)[0])}.*"):
        os.unlink(path)
    main(
        [
            "--registry",
            registry,
            "--name",
            f"{name}@{version}",
            "--source",
            *source,
            "--output",
            output,
        ]
    )

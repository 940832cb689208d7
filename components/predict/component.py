"""The pipeline's step `predict` on this machine; on Vertex AI it is a batch prediction."""


def predict(registry: str, name: str, version: str, source: list[str], output: str) -> None:
    """Writes what a registered version predicts for the rows of files.

    Args:
      registry: Place of the registry.
      name: Name of the model.
      version: Number of the version.
      source: Files or folders, as `--source` of `components.predict`.
      output: File to write, as its `--output`; files left by an earlier attempt are replaced.
    """
    import glob
    import os

    from components.predict.__main__ import main

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

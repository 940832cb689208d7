"""The pipeline's step `predict`; on Vertex AI it is a batch prediction."""


def predict(registry: str, name: str, version: str, source: list[str], directory: str) -> None:
    """Writes what a registered version predicts for the rows of files.

    Args:
      registry: Place of the registry.
      name: Name of the model.
      version: Number of the version.
      source: Files or folders, as `--source` of `components.predict`.
      directory: Where to write `predictions.parquet`. Nothing is done if an earlier
        attempt has written it.
    """
    import os

    from components.predict.__main__ import main
    from components.predict.options import RUN_FILE

    output = f"{directory}/{RUN_FILE}"
    if not os.path.exists(output):
        place = [f"--registry={registry}", f"--name={name}@{version}", f"--output={output}"]
        main([*place, "--source", *source])

"""The pipeline's step `predict`; on Vertex AI it is a batch prediction."""


def predict(registry: str, name: str, version: str, source: list[str], directory: str) -> None:
    """Writes what a registered version predicts for the rows of files.

    Args:
      registry: Place of the registry.
      name: Name of the model.
      version: Number of the version.
      source: Files or folders, as `--source` of `components.predict`.
      directory: Where to write `predictions.parquet`, and `predictions.errors.jsonl` with the rows
        that the model refuses. Those of an earlier attempt, perhaps by another version, are
        replaced.

    Raises:
      UserError: If the model or a file cannot be read, or if no row can be answered.
      ConnectionError: If Vertex AI or a store does not answer.
    """
    import pathlib

    from components.predict.__main__ import main
    from components.predict.options import RUN_FILE

    output = f"{directory}/{RUN_FILE}"
    pathlib.Path(output).unlink(missing_ok=True)
    place = [f"--registry={registry}", f"--name={name}@{version}", f"--output={output}"]
    main([*place, "--source", *source])

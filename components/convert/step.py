"""Work of the pipeline's step `convert`, without Kubeflow Pipelines."""

import contextlib
import dataclasses
import pathlib
import re
import tempfile
from collections.abc import Iterator, Sequence

from common.cli import set_up_output
from common.storage.files import read_bytes
from components.convert import output, store
from components.convert.convert import convert
from components.convert.options import Options


@contextlib.contextmanager
def parsed_options(convert_args: Sequence[str], schema: str, directory: str) -> Iterator[Options]:
    """Parses the arguments of the pipeline step.

    Args:
      convert_args: Flags of `components.convert`.
      schema: Text of the schema file; empty for none.
      directory: Output directory. The `/gcs/` of a mounted bucket is replaced by `gs://`.

    Yields:
      The options. The file of the schema exists until the block ends.

    Raises:
      UserError: If a flag or its value is wrong.
    """
    set_up_output()
    # Files of a mounted bucket can neither be renamed nor locked.
    directory = re.sub("^/gcs/", "gs://", directory)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".yaml") as file:
        file.write(schema)
        file.flush()
        path = file.name if schema else None
        yield Options.parse(convert_args, "components.convert", schema=path, output=directory)


def make(options: Options, directory: str, page: str) -> tuple[str, dict[str, str | int]]:
    """Makes the dataset, or takes it from another run, and copies its page.

    Args:
      options: Options of the conversion.
      directory: Folder for this dataset that the runs of this machine share; empty to write
        to `options.output`.
      page: Path of the copy of the dataset's page.

    Returns:
      The directory of the dataset; and what a console shows of it: its name, its fingerprint, and
      the number of examples of each split.

    Raises:
      UserError: If the dataset cannot be converted.
      ConnectionError: If a store does not answer.
      OSError: If the folder of `directory` or the copy of the page cannot be written.
    """
    directory = directory or options.output
    shared = directory != options.output
    with store.held(pathlib.Path(directory)) if shared else contextlib.nullcontext():
        manifest = store.ready(pathlib.Path(directory)) if shared else None
        if manifest:
            print(f"{directory}: another run has converted it")
        else:
            manifest = convert(dataclasses.replace(options, output=directory))
        pathlib.Path(page).write_bytes(read_bytes(f"{directory}/{output.PAGE}") or b"")
    counts = {split: part.examples for split, part in manifest.splits.items()}
    return directory, {"name": manifest.name, "fingerprint": manifest.fingerprint, **counts}

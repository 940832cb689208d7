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
    """Parses the arguments of the step; the file with the schema's text exists as long as the block lasts."""
    set_up_output()
    directory = re.sub(
        "^/gcs/", "gs://", directory
    )  # of a mounted bucket no file can be renamed or locked
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".yaml") as file:
        file.write(schema)
        file.flush()
        path = file.name if schema else None
        yield Options.parse(convert_args, "components.convert", schema=path, output=directory)


def make(options: Options, directory: str, page: str) -> tuple[str, dict[str, str | int]]:
    """Makes the dataset, in the directory that runs of this machine share if there is one, and copies its page.

    Returns:
      Where the dataset is, and what a console shows of it beside the page.
    """
    directory = directory or options.output
    shared = directory != options.output
    with store.held(pathlib.Path(directory)) if shared else contextlib.nullcontext():
        manifest = store.ready(pathlib.Path(directory)) if shared else None
        if manifest:
            print(f"{directory}: another run has converted it")
        else:
            manifest = convert(dataclasses.replace(options, output=directory))
        pathlib.Path(page).write_bytes(read_bytes(f"{directory}/{output.PAGE}"))
    counts = {split: part.examples for split, part in manifest.splits.items()}
    return directory, {"name": manifest.name, "fingerprint": manifest.fingerprint, **counts}

"""Work of the pipeline's step `convert`, without Kubeflow Pipelines.

Runs share datasets: the first run that needs one converts it, and others wait. In a bucket, which
has no locks, they convert it too, to the same bytes.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator, Sequence

from common.cli import set_up_output
from common.errors import UserError
from common.locks import locked
from common.manifest import FILE, Manifest
from common.storage.files import delete_files, list_files, list_folder, read_bytes
from common.storage.storage import is_remote
from components.convert import output
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.registry import find_source

# Code that makes a dataset and its page: the step, and all that it imports.
CODE = ("common/**/*", "components/convert/**/*", "trainer/cluster/member.py")


@contextlib.contextmanager
def parsed_options(convert_args: Sequence[str], schema: str, directory: str) -> Iterator[Options]:
    """Parses the arguments of the pipeline step.

    Args:
      convert_args: Flags of `components.convert`.
      schema: Text of the schema file; empty for none.
      directory: Output directory.

    Yields:
      The options. The file of the schema exists until the block ends.

    Raises:
      UserError: If a flag or its value is wrong.
    """
    set_up_output()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".yaml") as file:
        file.write(schema)
        file.flush()
        path = file.name if schema else None
        yield Options.parse(convert_args, "components.convert", schema=path, output=directory)


def locate(folder: str, convert_args: Sequence[str], schema: str) -> str:
    """Returns the directory of a dataset in a folder that runs share.

    It is `<folder>/<dataset>-<16 digits of a hash>`. The hash is of all that decides the content of
    the dataset: the arguments, the present state of the source, and the code that converts.

    Args:
      folder: Folder of the datasets, local or `gs://BUCKET/NAME`.
      convert_args: Flags of `components.convert`.
      schema: Text of the schema file; empty for none.

    Raises:
      UserError: If a flag is wrong, or if the source cannot be read.
      ConnectionError: If the source is in a bucket that does not answer.
    """
    with parsed_options(convert_args, schema, "-") as options:
        source = find_source(options.dataset, options.source, schema=options.schema)
        digest = source.digest(options.source)
    code = code_digest(pathlib.Path(__file__).parents[2])
    key = hashlib.sha256(json.dumps([digest, code, [*convert_args], schema]).encode()).hexdigest()
    return f"{folder}/{re.sub('[:/]', '-', options.dataset)}-{key[:16]}"


def code_digest(root: pathlib.Path) -> str:
    """Returns the SHA-256 (hexadecimal) over names and contents of the code that converts.

    Args:
      root: Directory of the project, below which `CODE` has patterns of paths.
    """
    digest = hashlib.sha256()
    for path in sorted(path for pattern in CODE for path in root.glob(pattern)):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _held(directory: str) -> contextlib.AbstractContextManager[int | None]:
    """Returns a context manager that holds the lock of one dataset.

    Runs convert or delete a dataset only while they hold its lock. On entering, it waits while
    another run holds it, and prints one line about that. It yields the descriptor of the lock file,
    or None in a bucket.

    Args:
      directory: Directory of the dataset. The folder above it is created at once, and on entering
        `<directory>.lock`, the lock file, beside the directory.

    Raises:
      OSError: If the folder or the lock file cannot be created.
    """
    if is_remote(directory):
        return contextlib.nullcontext()
    os.makedirs(os.path.dirname(directory), exist_ok=True)
    print_once = functools.cache(
        lambda: print(f"waiting for another run to convert {directory}", flush=True)
    )
    return locked(f"{directory}.lock", print_once)


def ready(directory: str) -> Manifest | None:
    """Returns the manifest of a dataset that is complete, and deletes what is not.

    A dataset is complete if its page is there, and its shards are there with the sizes that the
    manifest says; checksums are left to those who read the shards. The time of a complete one's
    local directory is set to now, as that of its last use.

    Args:
      directory: Directory of the dataset.

    Returns:
      The manifest; None if there is no complete dataset. Its files are deleted then, unless they
      are of an unfinished conversion, which can be continued.

    Raises:
      UserError: If a store refuses to list or delete files.
      ConnectionError: If a store does not answer.
      OSError: If the manifest cannot be read, or a local file cannot be deleted.
    """
    folders, files = list_folder(directory)
    num_bytes = {os.path.basename(file.path): file.num_bytes for file in files}
    path = f"{directory}/{FILE}"
    # Only a damaged manifest is a reason to delete, not one that cannot be read.
    text = read_bytes(path) or b""
    with contextlib.suppress(UserError):
        manifest = Manifest.parse(text, path)
        if output.PAGE in num_bytes and all(
            num_bytes.get(shard.file) == shard.bytes for shard in manifest.shards
        ):
            if not is_remote(directory):
                os.utime(directory)
            return manifest
    if FILE in num_bytes or f"{directory}/{output.WORK}" not in folders:
        delete_files(file.path for file in list_files(directory))
    return None


def make(options: Options, page: str) -> dict[str, str | int]:
    """Makes the dataset, unless another run has, and copies its page.

    On this machine, it waits while another run makes the dataset.

    Args:
      options: Options of the conversion. The directory is the dataset's alone, as `locate` names
        it, and may be shared by several runs.
      page: Path of the copy of the dataset's page.

    Returns:
      What a console shows of the dataset: its `name`, its `fingerprint`, and the number of examples
      of each split, by the split's name.

    Raises:
      UserError: If the dataset cannot be converted.
      ConnectionError: If a store does not answer.
      OSError: If the folder of the dataset or the copy of the page cannot be written.
    """
    directory = options.directory
    with _held(directory):
        if manifest := ready(directory):
            print(f"{directory}: converted already")
        else:
            manifest = convert(options)
        pathlib.Path(page).write_bytes(read_bytes(f"{directory}/{output.PAGE}") or b"")
    counts = {split: part.examples for split, part in manifest.splits.items()}
    return {"name": manifest.name, "fingerprint": manifest.fingerprint, **counts}

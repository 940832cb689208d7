"""Downloads the files that publishers of datasets offer, which `downloads.toml` lists.

    (path,) = download(OFFERED["cifar10"], directory)

A file is downloaded once. It gets its name when its checksum has been found right. Proxies are
taken from the environment.
"""

import dataclasses
import functools
import itertools
import pathlib
import time
import tomllib
from collections.abc import Mapping, Sequence

from common import progress
from common.errors import UserError, first_line, writable
from common.locks import locked
from common.storage.files import sha256_of

_CHUNK_BYTES = 1 << 16
# Longest wait for a connection to each address of a host, and for the next bytes.
_CONNECT_S, _READ_S = 3.0, 30.0
_ATTEMPTS = 3  # Attempts for each URL.
_PAUSE_S = 0.5  # Pause before a second attempt; before a third it is twice as long.
_REPAIR = "check the network, or get the files elsewhere and give their place with --source"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file that can be downloaded.

    Attributes:
      name: Name of the file.
      urls: Addresses, each of which has the whole file.
      num_bytes: Size of the file.
      sha256: SHA-256 of the file, hexadecimal.
    """

    name: str
    urls: tuple[str, ...]
    num_bytes: int
    sha256: str


OFFERED: Mapping[str, tuple[RemoteFile, ...]] = {
    dataset: tuple(
        RemoteFile(
            name=name,
            urls=tuple(base + name for base in offer["bases"]),
            num_bytes=num_bytes,
            sha256=sha256,
        )
        for name, (num_bytes, sha256) in offer["files"].items()
    )
    for dataset, offer in tomllib.loads(
        pathlib.Path(__file__).with_suffix(".toml").read_text()
    ).items()
}


def download(files: Sequence[RemoteFile], directory: pathlib.Path) -> list[pathlib.Path]:
    """Downloads the files that are not in a directory yet, or have a wrong checksum there.

    While another process downloads files to the directory, it waits.

    Args:
      files: The files.
      directory: The directory, which is made if it does not exist.

    Returns:
      The paths of the files, in order. Their checksums are right.

    Raises:
      UserError: If no URL provides a file, or the directory cannot be written.
    """
    waiting = functools.cache(
        lambda: print(f"waiting for another download to {directory}", flush=True)
    )
    with writable(f"downloads to {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory, waiting):
            return [_download(file, directory / file.name) for file in files]


def _download(file: RemoteFile, path: pathlib.Path) -> pathlib.Path:
    """Downloads a file, unless the path has its content already, and returns the path.

    A file at the path with another SHA-256 is replaced. The URLs are tried in turn, each up to
    three times, until one provides the file.

    Raises:
      UserError: If no URL provides the file with its SHA-256.
      OSError: If the path cannot be read or written.
    """
    import requests  # Slow to import.
    import urllib3

    if path.is_file() and sha256_of(path) == file.sha256:
        return path
    part = path.with_name(f"{path.name}.part")
    faults = {}
    for attempt, url in itertools.product(range(_ATTEMPTS), file.urls):
        time.sleep(_PAUSE_S * attempt)
        try:
            _receive(url, file, part)
            return part.replace(path)
        except (requests.RequestException, urllib3.exceptions.HTTPError, UserError) as error:
            faults[url] = f"{url}: {first_line(error)}"
        finally:
            part.unlink(missing_ok=True)
    raise UserError(f"cannot download {'; '.join(faults.values())}; {_REPAIR}")


def _receive(url: str, file: RemoteFile, part: pathlib.Path) -> None:
    """Writes what a URL sends to a path.

    Raises:
      UserError: If that is not the file that was published.
      requests.RequestException: If the host cannot be reached, or refuses.
      urllib3.exceptions.HTTPError: If the connection fails in the middle.
    """
    import requests

    # Otherwise a server may take the file's own compression for one of the transfer.
    headers = {"Accept-Encoding": "identity"}
    with requests.get(url, headers=headers, stream=True, timeout=(_CONNECT_S, _READ_S)) as response:
        response.raise_for_status()
        print(f"downloading {url}, {file.num_bytes / 1e6:,.1f} MB", flush=True)
        with (
            open(part, "wb") as stream,
            progress.track(file.name, file.num_bytes, "bytes") as advance,
        ):
            for chunk in response.raw.stream(_CHUNK_BYTES, decode_content=False):
                advance(stream.write(chunk))
    if (sha256 := sha256_of(part)) != file.sha256:
        raise UserError(
            f"{part.stat().st_size:,} bytes, whose SHA-256 is {sha256} where {file.sha256} was "
            "published"
        )

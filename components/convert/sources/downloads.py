"""Files that the publishers of datasets offer, as `downloads.toml` lists them: downloaded once and checked.

    (path,) = download(OFFERED["cifar10"], directory)

A file gets its name when its checksum is right. Proxies are taken from the environment.
"""

import dataclasses
import functools
import pathlib
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from common import progress
from common.errors import UserError, first_line
from common.locks import locked
from common.storage.files import sha256_of

_CHUNK_BYTES = 1 << 16
_CONNECT_S, _READ_S = (
    3.0,
    30.0,
)  # To wait for a connection, to each address of a host, and for the next bytes.
_ATTEMPTS = 3  # At a URL.
_PAUSE_S = 0.5  # Before the second one, and twice as long before the third.
_REPAIR = "check the network, or get the files elsewhere and give their place with --source"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file that any of the URLs offers, its size, and its SHA-256 (hexadecimal)."""

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
    """Returns the files in the directory, each downloaded unless it is there; another process's download is awaited.

    Raises:
      UserError: If no URL gives a file, or the directory cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        waiting = functools.cache(
            lambda: print(f"waiting for another download to {directory}", flush=True)
        )
        with locked(directory, waiting):
            return [_download(file, directory / file.name) for file in files]
    except OSError as error:
        raise UserError(
            f"cannot write downloads to {directory}: {error.strerror or error}; set "
            "XDG_CACHE_HOME to another folder"
        ) from None


def _download(file: RemoteFile, path: pathlib.Path) -> pathlib.Path:
    """Returns the path, with the file there, from the first URL that gives it."""
    import requests  # Slow to import.
    import urllib3

    if path.is_file() and sha256_of(path) == file.sha256:
        return path
    part = path.with_name(f"{path.name}.part")
    faults = []
    for url in file.urls:
        for attempt in range(_ATTEMPTS):
            time.sleep(_PAUSE_S * attempt)
            try:
                _receive(url, file, part)
                return part.replace(path)
            except (requests.RequestException, urllib3.exceptions.HTTPError, UserError) as error:
                fault = f"{url}: {first_line(error)}"
                # A firewall that drops what is sent, and a publisher of other bytes, will go on to.
                if isinstance(error, (requests.ConnectTimeout, UserError)):
                    break
            finally:
                part.unlink(missing_ok=True)
        faults.append(fault)
    raise UserError(f"cannot download {'; '.join(faults)}; {_REPAIR}")


def _receive(url: str, file: RemoteFile, part: pathlib.Path) -> None:
    """Writes what a URL sends to a path; it is a `UserError` if that is not what was published."""
    import requests

    headers = {
        "Accept-Encoding": "identity"
    }  # A server may take the file's own compression for one of the transfer.
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


def require_reachable(urls: Iterable[str], prefix: str = "") -> None:
    """Asks the hosts, or the proxies that the environment names for them, until one answers.

    Raises:
      UserError: If none does; it names them, after `prefix`.
    """
    import requests

    faults = []
    for host, url in {
        urlsplit(url).hostname: url for url in urls if url.startswith("http")
    }.items():
        try:
            requests.head(url, timeout=_CONNECT_S)
            return
        except requests.RequestException as error:
            faults.append(f"{host} ({first_line(error)})")
    if faults:
        raise UserError(f"{prefix}cannot reach {', '.join(faults)}; {_REPAIR}")

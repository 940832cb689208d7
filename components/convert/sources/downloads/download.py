"""Files that a publisher offers, downloaded once and checked.

    (path,) = fetch([RemoteFile(urls=("https://...",), num_bytes=123, sha256="...")], directory)

A file gets its name when its checksum is right. Proxies are taken from the environment.
"""

import functools
import pathlib
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

import requests
import tenacity
import urllib3

from common.errors import UserError
from common.locks import locked
from common.storage.files import sha256_of
from components.convert.sources.downloads.catalog import RemoteFile
from components.convert.writing import progress

_CHUNK_BYTES = 1 << 16
_CONNECT_S, _READ_S = 3.0, 30.0  # to wait for a connection, to each address of a host, and for the next bytes
_ATTEMPTS = 3  # in a row that bring nothing, before a URL is given up
_PAUSE_S = 0.5  # between these, doubled after each
_REPAIR = "check the network, or get the files elsewhere and give their place with --source"


class _Useless(Exception):
    """A URL does not give the file, and would not if it were asked again."""


_PASSING = (requests.RequestException, urllib3.exceptions.HTTPError)
_FINAL = requests.ConnectTimeout  # a firewall that drops what is sent will go on to


def fetch(files: Sequence[RemoteFile], directory: pathlib.Path) -> list[pathlib.Path]:
    """The files in the directory, each downloaded unless it is there; if no host has one, that is told, with `--source`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tell = functools.cache(lambda: print(f"waiting for another download to {directory}", flush=True))
        with locked(directory, tell):
            for file in files:
                if not _intact(directory / file.name, file):
                    _download(file, directory / file.name)
    except OSError as error:
        raise UserError(
            f"cannot write downloads to {directory}: {error.strerror or error}; set XDG_CACHE_HOME to another folder"
        ) from None
    return [directory / file.name for file in files]


def _intact(path: pathlib.Path, file: RemoteFile) -> bool:
    return path.is_file() and path.stat().st_size == file.num_bytes and sha256_of(path) == file.sha256


def _download(file: RemoteFile, path: pathlib.Path) -> None:
    part, faults = path.with_name(f"{path.name}.part"), []
    again = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(_PASSING) & tenacity.retry_if_not_exception_type(_FINAL),
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=tenacity.wait_exponential(_PAUSE_S),
        reraise=True,
    )
    for url in file.urls:
        try:
            again(_receive, url, file, part)
        except (*_PASSING, _Useless) as error:
            faults.append(f"{url}: {_reason(error)}")
        else:
            part.replace(path)
            return
        finally:
            part.unlink(missing_ok=True)
    raise UserError(f"cannot download {'; '.join(faults)}; {_REPAIR}")


def _receive(url: str, file: RemoteFile, part: pathlib.Path) -> None:
    """Writes the file, and checks it."""
    headers = {"Accept-Encoding": "identity"}  # a server may take the file's own compression for one of the transfer
    with requests.get(url, headers=headers, stream=True, timeout=(_CONNECT_S, _READ_S)) as response:
        if response.status_code >= 500 or response.status_code == 429:
            response.raise_for_status()
        if response.status_code != 200:
            raise _Useless(f"HTTP status {response.status_code}")
        print(f"downloading {url}, {file.num_bytes / 1e6:,.1f} MB", flush=True)
        with open(part, "wb") as stream, progress.track(file.name, file.num_bytes, "bytes") as advance:
            while chunk := response.raw.read(_CHUNK_BYTES, decode_content=False):
                stream.write(chunk)
                advance(len(chunk))
                if stream.tell() > file.num_bytes:
                    raise _Useless(f"sends more than the {file.num_bytes:,} bytes that were published")
    if part.stat().st_size < file.num_bytes:
        raise requests.ConnectionError(f"ended after {part.stat().st_size:,} of {file.num_bytes:,} bytes")
    if not _intact(part, file):
        raise _Useless(f"SHA-256 is {sha256_of(part)} where {file.sha256} was published")


def require_reachable(urls: Iterable[str], otherwise: str = "") -> None:
    """Asks the hosts, or the proxies that the environment names for them, until one answers.

    If none does, an error names them, after what `otherwise` says.
    """
    faults = []
    for host, url in {urlsplit(url).hostname: url for url in urls if url.startswith("http")}.items():
        try:
            requests.head(url, timeout=_CONNECT_S)
            return
        except requests.RequestException as error:
            faults.append(f"{host} ({_reason(error)})")
    if faults:
        raise UserError(f"{otherwise}cannot reach {', '.join(faults)}; {_REPAIR}")


def _reason(error: BaseException) -> str:
    """What is innermost of the errors that libraries have wrapped into one another, in one line."""
    while inner := next((e for e in (getattr(error, "reason", None), *error.args) if isinstance(e, Exception)), None):
        error = inner
    return " ".join(str(error).split())[:200]

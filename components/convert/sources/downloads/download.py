"""Files that a publisher offers, downloaded once and checked.

    (path,) = fetch([RemoteFile(urls=("https://...",), num_bytes=123, sha256="...")], directory)

A file gets its name when its checksum is right. What has come before an interruption stays as `.part`, and the next
attempt, or the next run, asks for the rest only. Proxies are taken from the environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import IO

from components.convert.sources.downloads import network
from components.convert.writing import progress
from trainer.base.errors import UserError
from trainer.base.files import digest_of

_CHUNK_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file that is to be had at any of the URLs, its size, and its SHA-256 (hexadecimal)."""

    urls: tuple[str, ...]
    num_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The last part of the URLs."""
        return self.urls[0].rpartition("/")[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait.

    Attributes:
      check_s: For any of the hosts, before anything is asked for.
      connect_s: For a connection.
      read_s: For the next bytes.
      attempts: In a row that bring no new bytes, before a URL is given up.
      pause_s: After the first of these; doubled after each.
    """

    check_s: float = 3.0
    connect_s: float = 5.0
    read_s: float = 30.0
    attempts: int = 4
    pause_s: float = 1.0


PATIENCE = Patience()


def cache_dir() -> pathlib.Path:
    """Where downloads are kept: in the user's cache (https://specifications.freedesktop.org/basedir-spec)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return pathlib.Path(base if os.path.isabs(base) else "~/.cache").expanduser() / "tfrecord-training-pipeline"


def fetch(files: Sequence[RemoteFile], directory: pathlib.Path, patience: Patience = PATIENCE) -> list[pathlib.Path]:
    """The files in the directory, each downloaded unless it is there.

    Raises:
      UserError: If no host can be reached, which shows within `check_s`, or a file cannot be had; it names `--source`.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory):
            for file in files:
                if not _intact(directory / file.name, file):
                    _download(file, directory / file.name, patience)
    except OSError as error:
        raise UserError(f"cannot write to --download-dir {directory}: {error.strerror or error}") from None
    return [directory / file.name for file in files]


@contextlib.contextmanager
def _locked(directory: pathlib.Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another download to {directory}", flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _intact(path: pathlib.Path, file: RemoteFile) -> bool:
    return path.is_file() and path.stat().st_size == file.num_bytes and digest_of(path) == file.sha256


class _Failed(Exception):
    """An attempt failed; if `final`, another at the same URL is of no use."""

    def __init__(self, reason: str, *, final: bool = False):
        super().__init__(reason)
        self.final = final


def _download(file: RemoteFile, path: pathlib.Path, patience: Patience) -> None:
    part, faults = path.with_name(f"{path.name}.part"), []
    for url in network.reachable(file.urls, patience.check_s):
        failures = 0
        while failures < patience.attempts:
            before = _size(part)
            try:
                _attempt(url, file, part, patience)
                part.replace(path)
                return
            except _Failed as failed:
                fault, final = str(failed), failed.final
            failures = 1 if _size(part) > before else failures + 1
            if final or failures == patience.attempts:
                break
            time.sleep(patience.pause_s * 2 ** (failures - 1))
        faults.append(f"{url}: {fault}")
    raise UserError(f"cannot download {'; '.join(faults)}; {network.REPAIR}")


def _size(part: pathlib.Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _attempt(url: str, file: RemoteFile, part: pathlib.Path, patience: Patience) -> None:
    """Asks for what `part` lacks, adds it, and checks the whole."""
    with open(part, "ab") as stream:
        if (start := stream.tell()) < file.num_bytes:
            start = _receive(url, file, stream, patience)
        if (size := stream.tell()) < file.num_bytes:
            raise _Failed(f"ended after {size:,} of {file.num_bytes:,} bytes")
        os.fsync(stream.fileno())
    if not _intact(part, file):
        digest = digest_of(part)
        part.unlink()
        # What was put together from pieces may be wrong for that reason alone.
        raise _Failed(f"SHA-256 is {digest} where {file.sha256} was published", final=start == 0)


def _receive(url: str, file: RemoteFile, stream: IO[bytes], patience: Patience) -> int:
    """Appends what the server sends. Returns where that starts: 0 if it sends all once more."""
    import requests  # 0.1 s
    import urllib3

    start = stream.tell()
    # As it is: a server may take the file's own compression for one of the transfer.
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
    try:
        timeouts = (patience.connect_s, patience.read_s)
        with requests.get(url, headers=headers, stream=True, timeout=timeouts) as response:
            if response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                pass
            elif response.status_code in (200, 206, 416):  # all of it, another part, or no such part
                start = stream.seek(0)
                stream.truncate()
            if response.status_code != (206 if start else 200):
                final = response.status_code < 500 and response.status_code not in (206, 408, 416, 425, 429)
                raise _Failed(f"HTTP status {response.status_code}", final=final)
            print(f"downloading {url}, {file.num_bytes / 1e6:,.1f} MB{' from where it was' * (start > 0)}", flush=True)
            with progress.track(file.name, file.num_bytes, "bytes") as advance:
                advance(start)
                while chunk := response.raw.read1(_CHUNK_BYTES, decode_content=False):
                    stream.write(chunk)
                    advance(len(chunk))
                    if stream.tell() > file.num_bytes:
                        raise _Failed(f"sends more than the {file.num_bytes:,} bytes that were published", final=True)
    except requests.Timeout:
        raise _Failed(f"no connection within {patience.connect_s:g} s, or nothing for {patience.read_s:g} s") from None
    except urllib3.exceptions.TimeoutError:
        raise _Failed(f"sent nothing for {patience.read_s:g} s") from None
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise _Failed(" ".join(str(error).split())[:200]) from None
    return start

"""Where the publishers of datasets offer the files, as `catalog.toml` has it."""

import dataclasses
import pathlib
import tomllib
from collections.abc import Mapping


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


OFFERED: Mapping[str, tuple[RemoteFile, ...]] = {
    dataset: tuple(
        RemoteFile(urls=tuple(base + name for base in offer["bases"]), num_bytes=num_bytes, sha256=sha256)
        for name, (num_bytes, sha256) in offer["files"].items()
    )
    for dataset, offer in tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text()).items()
}

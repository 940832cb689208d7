from __future__ import annotations

import gzip
import pathlib
import struct
from collections.abc import Callable

import numpy as np
import pytest

from components.convert.__main__ import main
from trainer.errors import run_cli


def _idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture(scope="session")
def idx_bytes() -> Callable[[np.ndarray], bytes]:
    """The content of an IDX file."""
    return _idx_bytes


@pytest.fixture(scope="session")
def make_idx() -> Callable[..., dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Writes random images as a directory of IDX files; returns images and labels by split."""

    def make(directory: pathlib.Path, *, size=(5, 4), classes=10, dots=False, packed=True, **examples: int):
        directory.mkdir(parents=True, exist_ok=True)
        made = {}
        for split, count in examples.items():
            random = np.random.default_rng(count)
            images = random.integers(0, 256, (count, *size), np.uint8)
            labels = (np.arange(count) % classes).astype(np.uint8)
            for kind, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
                name = {"train": "train-", "test": "t10k-"}[split] + (kind.replace("-idx", ".idx") if dots else kind)
                data = _idx_bytes(array)
                (directory / (name + ".gz" * packed)).write_bytes(gzip.compress(data) if packed else data)
            made[split] = (images, labels)
        return made

    return make


@pytest.fixture
def fails(capsys) -> Callable[..., str]:
    """Runs the command, sees it exit with 2 and one line, and returns the line."""

    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit) as stopped:
            run_cli(lambda: main([str(argument) for argument in arguments]))
        err = capsys.readouterr().err
        assert stopped.value.code == 2
        assert err.startswith("error: ") and err.count("\n") == 1
        return err

    return run


@pytest.fixture(scope="session")
def content() -> Callable[[pathlib.Path], dict[str, bytes]]:
    """All files below a directory."""
    return lambda directory: {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }

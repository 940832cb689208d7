import dataclasses
import functools
import gzip
import io
import pathlib
import struct
from collections.abc import Callable, Iterator
from typing import Any

import google_crc32c
import kinds
import numpy as np
import pytest

from common.manifest import Manifest
from components.convert.convert import convert
from components.convert.options import Options


def _idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture(scope="session")
def idx_bytes() -> Callable[[np.ndarray], bytes]:
    """The content of an IDX file."""
    return _idx_bytes


@pytest.fixture(scope="session")
def make_idx() -> Callable[..., dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Writes random images as a directory of IDX files; returns images and labels by split."""

    def make(directory: pathlib.Path, *, size=(5, 4), classes=10, packed=True, **examples: int):
        directory.mkdir(parents=True, exist_ok=True)
        made = {}
        for split, count in examples.items():
            random = np.random.default_rng(count)
            images = random.integers(0, 256, (count, *size), np.uint8)
            labels = (np.arange(count) % classes).astype(np.uint8)
            for kind, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
                name = {"train": "train-", "test": "t10k-"}[split] + kind
                data = _idx_bytes(array)
                (directory / (name + ".gz" * packed)).write_bytes(gzip.compress(data, mtime=0) if packed else data)
            made[split] = (images, labels)
        return made

    return make


@pytest.fixture
def fails(refused) -> Callable[..., str]:
    """Runs the command, sees it exit with 2 and one line, and returns the line."""
    from components.convert.__main__ import main

    return functools.partial(refused, main)


@pytest.fixture(scope="session")
def content() -> Callable[[pathlib.Path], dict[str, bytes]]:
    """All files below a directory."""
    return lambda directory: {
        str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()
    }


def _masked(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _payloads(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        length, header_crc = struct.unpack_from("<QI", data, start)
        payload = data[start + 12 : start + 12 + length]
        assert header_crc == _masked(data[start : start + 8])
        assert struct.unpack_from("<I", data, start + 12 + length) == (_masked(payload),)
        yield payload
        start += 16 + length


@pytest.fixture(scope="session")
def examples() -> Callable[[bytes], list[dict[str, list[Any]]]]:
    """The records of a TFRecord file, their checksums checked, as the official protobuf library parses them."""
    from tensorflow_datasets.proto import tf_example_pb2  # slow to import

    def parse(data: bytes) -> list[dict[str, list[Any]]]:
        found = (tf_example_pb2.Example.FromString(payload).features.feature for payload in _payloads(data))
        return [
            {name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()} for features in found
        ]

    return parse


@pytest.fixture(scope="session")
def held(examples) -> Callable[..., list[dict[str, Any]]]:
    """The records of a split of a dataset, in order, each of whose features has one value."""

    def read(directory: pathlib.Path, split: str = "train") -> list[dict[str, Any]]:
        shards = Manifest.load(directory).splits[split].shards
        records = [record for shard in shards for record in examples((directory / shard.file).read_bytes())]
        return [{name: value for name, (value,) in record.items()} for record in records]

    return read


def _feature(values: Any):
    """An entry of an Example: one value or several, of the kind that their type says; `()` is a feature without values."""
    values = values if isinstance(values, list | tuple) else [values]
    kinds = {bytes: "bytes_list", int: "int64_list", float: "float_list"}
    return {kinds[type(values[0])]: {"value": values}} if values else {}


@pytest.fixture(scope="session")
def write_records() -> Callable[..., pathlib.Path]:
    """Writes a TFRecord file, packed if its name ends in `.gz`: of bytes, or of the features of Examples."""
    from tensorflow_datasets.proto import tf_example_pb2  # slow to import

    def write(path: pathlib.Path, records: list[bytes | dict[str, Any]]) -> pathlib.Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with io.BytesIO() as file:
            for record in records:
                if isinstance(record, dict):
                    features = {key: _feature(values) for key, values in record.items()}
                    record = tf_example_pb2.Example(features={"feature": features}).SerializeToString()
                length = struct.pack("<Q", len(record))
                file.write(length + struct.pack("<I", _masked(length)) + record + struct.pack("<I", _masked(record)))
            path.write_bytes((gzip.compress if path.suffix == ".gz" else bytes)(file.getvalue()))
        return path

    return write


@pytest.fixture(scope="module", params=kinds.KINDS)
def options(request, tmp_path_factory, make_idx, write_records) -> Options:
    """A conversion of a source of each kind."""
    root = tmp_path_factory.mktemp("source")
    source = kinds.make(request.param, root, make_idx, write_records)
    return Options(**source, output=str(root / "out"), shards=7, processes=1)


@pytest.fixture(scope="module")
def expected(options, content) -> dict[str, bytes]:
    """Files that one process makes of it, by their paths below the output."""
    convert(dataclasses.replace(options, processes=1))
    return content(pathlib.Path(options.output))

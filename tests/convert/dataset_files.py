"""Files of datasets, written for tests and read by other means than ours."""

import gzip
import io
import pathlib
import struct
from collections.abc import Iterator
from typing import Any

import google_crc32c
import numpy as np

from common.manifest import Manifest


def idx_bytes(array: np.ndarray) -> bytes:
    """Returns the content of an IDX file."""
    return (
        struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        + array.astype(np.uint8).tobytes()
    )


def make_idx(
    directory: pathlib.Path,
    *,
    size: tuple[int, int] = (5, 4),
    classes: int = 10,
    packed: bool = True,
    **examples: int,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Writes so many random images of `train` and `test` as IDX files; returns images and labels by split."""
    directory.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for split, count in examples.items():
        images = np.random.default_rng(count).integers(0, 256, (count, *size), np.uint8)
        labels = (np.arange(count) % classes).astype(np.uint8)
        for kind, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            path, data = directory / f"{split.replace('test', 't10k')}-{kind}", idx_bytes(array)
            if packed:
                path, data = path.with_name(f"{path.name}.gz"), gzip.compress(data, mtime=0)
            path.write_bytes(data)
        arrays[split] = (images, labels)
    return arrays


def read_folder(directory: pathlib.Path) -> dict[str, bytes]:
    """Returns all files below a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
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


def parse_examples(data: bytes) -> list[dict[str, list[Any]]]:
    """Returns the records of a TFRecord file, their checksums checked, as the official protobuf library parses them."""
    from tensorflow_datasets.proto import tf_example_pb2  # Slow to import.

    records = [
        tf_example_pb2.Example.FromString(payload).features.feature for payload in _payloads(data)
    ]
    return [
        {name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()}
        for features in records
    ]


def read_split(directory: pathlib.Path, split: str = "train") -> list[dict[str, Any]]:
    """Returns the records of a split of a dataset, in order, each of whose features has one value."""
    shards = Manifest.load(directory).splits[split].shards
    records = [
        record
        for shard in shards
        for record in parse_examples((directory / shard.file).read_bytes())
    ]
    return [{name: value for name, (value,) in record.items()} for record in records]


def _feature(values: Any) -> dict[str, Any]:
    """Returns an entry of an Example: one value or several, of the kind that their type says; `()` has no values."""
    values = values if isinstance(values, list | tuple) else [values]
    kinds = {bytes: "bytes_list", int: "int64_list", float: "float_list"}
    return {kinds[type(values[0])]: {"value": values}} if values else {}


def write_records(path: pathlib.Path, records: list[bytes | dict[str, Any]]) -> pathlib.Path:
    """Writes a TFRecord file, packed if its name ends in `.gz`: of bytes, or of the features of Examples."""
    from tensorflow_datasets.proto import tf_example_pb2  # Slow to import.

    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    for record in records:
        if isinstance(record, dict):
            features = {key: _feature(values) for key, values in record.items()}
            record = tf_example_pb2.Example(features={"feature": features}).SerializeToString()
        length = struct.pack("<Q", len(record))
        file.write(
            length
            + struct.pack("<I", _masked(length))
            + record
            + struct.pack("<I", _masked(record))
        )
    path.write_bytes(gzip.compress(file.getvalue()) if path.suffix == ".gz" else file.getvalue())
    return path

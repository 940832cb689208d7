"""TFRecord files of equal-length `tf.train.Example` records, assembled by NumPy without TensorFlow.

    layout = Layout([Field(name="image", kind="bytes", num_bytes=784), Field(name="label", kind="int64", num_bytes=1)])
    size, sha256 = write("train.tfrecord", layout, {"image": images, "label": labels}, rows=np.arange(100))

When every value has a fixed width, the records differ in the values and the checksum only: a template is copied and
those bytes are filled in, many records at a time. Integers keep their width as varints with leading zero groups,
which every protobuf parser accepts.

A record is the payload's length (8 bytes), the masked CRC-32C of these, the payload, the masked CRC-32C of the payload
(https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details).
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Literal

import google_crc32c
import numpy as np

_HEADER_BYTES, _FOOTER_BYTES = 12, 4
_CHUNK_BYTES = 1 << 20  # assembled at once: enough to hide NumPy's overhead, small enough for the cache
_LENGTH_DELIMITED = {"bytes": b"\x0a", "int64": b"\x1a"}  # Feature.bytes_list = 1, Feature.int64_list = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """One value of every record: raw bytes, or one non-negative integer as a varint of `num_bytes`."""

    name: str
    kind: Literal["bytes", "int64"]
    num_bytes: int


class Layout:
    """Where each value lies in a record.

    Attributes:
      fields: In the order of their names, which is the order in the record.
      offsets: By name, bytes from the start of the record (length header included) to the value.
      record_bytes: Length of a record with its framing.
    """

    def __init__(self, fields: Sequence[Field]):
        self.fields = tuple(sorted(fields, key=lambda field: field.name))
        body, ends = b"", {}
        for field in self.fields:
            values = _nested(_LENGTH_DELIMITED[field.kind], _nested(b"\x0a", bytes(field.num_bytes)))
            body += _nested(b"\x0a", _nested(b"\x0a", field.name.encode()) + _nested(b"\x12", values))
            ends[field.name] = len(body)
        payload = _nested(b"\x0a", body)
        start = _HEADER_BYTES + len(payload) - len(body)
        length = struct.pack("<Q", len(payload))
        header = length + _masked(np.array([google_crc32c.value(length)], np.uint32)).tobytes()
        self.offsets = {field.name: start + ends[field.name] - field.num_bytes for field in self.fields}
        self.record_bytes = len(header) + len(payload) + _FOOTER_BYTES
        self._template = np.frombuffer(header + payload + bytes(_FOOTER_BYTES), np.uint8)

    def encode(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """The records, uint8 [N, record_bytes].

        Args:
          columns: By field, values of N records: uint8 [N, ...] of `num_bytes` each, or integers [N].

        Raises:
          ValueError: If an integer needs more than the `num_bytes` of its field.
        """
        records = np.tile(self._template, (len(columns[self.fields[0].name]), 1))
        for field in self.fields:
            offset, values = self.offsets[field.name], columns[field.name]
            if field.kind == "int64":
                values = _varints(values, field.num_bytes)
            records[:, offset : offset + field.num_bytes] = values.reshape(len(records), field.num_bytes)
        payloads = records[:, _HEADER_BYTES:-_FOOTER_BYTES]
        checksums = np.fromiter(map(google_crc32c.value, payloads), np.uint32, len(records))
        records[:, -_FOOTER_BYTES:] = _masked(checksums).view(np.uint8).reshape(-1, _FOOTER_BYTES)
        return records


def write(
    path: str | os.PathLike[str], layout: Layout, columns: Mapping[str, np.ndarray], *, rows: np.ndarray
) -> tuple[int, str]:
    """Writes the given rows of the columns as one file; returns its bytes and its SHA-256 (hexadecimal)."""
    digest = hashlib.sha256()
    step = max(1, _CHUNK_BYTES // layout.record_bytes)
    with open(path, "wb") as file:
        for start in range(0, len(rows), step):
            chunk = rows[start : start + step]
            records = layout.encode({name: column[chunk] for name, column in columns.items()})
            file.write(records)
            digest.update(records)
    return len(rows) * layout.record_bytes, digest.hexdigest()


def varint_bytes(largest: int) -> int:
    """Bytes that a varint needs for every integer from 0 to `largest`."""
    return max(1, -(-largest.bit_length() // 7))


def _varints(values: np.ndarray, num_bytes: int) -> np.ndarray:
    groups = values.astype(np.uint64)[:, np.newaxis] >> np.arange(0, 7 * num_bytes, 7, dtype=np.uint64)
    if (groups[:, -1] > 127).any():
        raise ValueError(f"{values.max()} or {values.min()} does not fit into a varint of {num_bytes} bytes")
    groups = (groups & np.uint64(127)).astype(np.uint8)
    groups[:, :-1] |= 128
    return groups


def _nested(tag: bytes, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    size = len(content)
    return tag + _varints(np.array([size]), varint_bytes(size)).tobytes() + content


def _masked(checksums: np.ndarray) -> np.ndarray:
    """CRC-32C as TFRecord stores it, uint32 little-endian."""
    rotated = (checksums >> np.uint32(15)) | (checksums << np.uint32(17))
    return (rotated + np.uint32(0xA282EAD8)).astype("<u4")

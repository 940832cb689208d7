"""Records of TFRecord files, `tf.train.Example` with the same fields, assembled by NumPy without TensorFlow.

    layout = Layout([Field(name="image", kind="bytes", num_bytes=784), Field(name="label", kind="int64", num_bytes=1)])
    records, ends = layout.encode({"image": images, "label": labels})

When every value has a fixed width, a template is copied and values and checksums are filled in, many records at a time.
Integers and lengths keep their width as varints with leading zero groups, which every protobuf parser accepts.

Strings differ in length, and a padded one would be another value. So they come last, behind every fixed field, and Arrow
joins them with what stands before and between them. Fixed fields thus lie at the same offset in every record, and where
each record starts is written to an index beside the file.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import google_crc32c
import numpy as np

if TYPE_CHECKING:  # Slow to import, and images of one size do without.
    import pyarrow as pa

HEADER_BYTES, FOOTER_BYTES = 12, 4  # Length and its checksum; the payload's checksum.

Column = "np.ndarray | pa.LargeBinaryArray"
_CHUNK_BYTES = (
    1 << 20
)  # assembled at once: enough to hide NumPy's overhead, small enough for the cache
# Feature.bytes_list = 1, .float_list = 2, .int64_list = 3
_LISTS = {"bytes": b"\x0a", "float": b"\x12", "int64": b"\x1a"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """One value of every record, or a vector of them, by its key in the Example.

    The kind is `bytes` for uint8 [N, ...] of `num_bytes` each; `float` for 32-bit numbers, [N] or
    [N, k], and `int64` for integers as varints of one width, 10 if any is negative, which take
    `num_bytes` together; `string` for an Arrow array of at most `num_bytes` each.
    """

    name: str
    kind: Literal["bytes", "float", "int64", "string"]
    num_bytes: int


class Layout:
    """Where each value lies in a record.

    Attributes:
      offsets: By name of a field that is no string, bytes from the start of the record (length
        header included) to the value.
      widths: By the same names, bytes of the value.
      record_bytes: Length of a record with its framing; None if there are strings.
      least_bytes: Length of a record whose strings are empty.
    """

    def __init__(self, fields: Sequence[Field]):
        fields = sorted(fields, key=lambda field: field.name)
        self._fixed = [field for field in fields if field.kind != "string"]
        self._strings = [field for field in fields if field.kind == "string"]
        heads_bytes = sum(
            _string_heads(field, np.zeros(1, np.int64)).size for field in self._strings
        )
        body, ends = b"", {}
        for field in self._fixed:
            values = nested(_LISTS[field.kind], nested(b"\x0a", bytes(field.num_bytes)))
            body += nested(b"\x0a", nested(b"\x0a", field.name.encode()) + nested(b"\x12", values))
            ends[field.name] = len(body)
        self._length_bytes = varint_bytes(
            len(body) + heads_bytes + sum(field.num_bytes for field in self._strings)
        )
        head = bytes(HEADER_BYTES) + b"\x0a" + bytes(self._length_bytes)
        footer = b"" if self._strings else bytes(FOOTER_BYTES)  # Strings come between.
        self._template = np.frombuffer(head + body + footer, np.uint8)
        self.offsets = {
            field.name: len(head) + ends[field.name] - field.num_bytes for field in self._fixed
        }
        self.widths = {field.name: field.num_bytes for field in self._fixed}
        self.least_bytes = len(head + body) + heads_bytes + FOOTER_BYTES
        self.record_bytes = None if self._strings else self.least_bytes

    def encode(self, columns: Mapping[str, Column]) -> tuple[np.ndarray, np.ndarray]:
        """Returns N encoded records, one after another, uint8 [bytes], and where each ends, int64 [N].

        Args:
          columns: N values of each field, by its name.

        Raises:
          ValueError: If an integer needs more than the `num_bytes` of its field.
        """
        sizes = self._sizes(columns)
        count = len(sizes)
        records = np.empty((count, len(self._template)), np.uint8)
        records[:] = self._template
        records[:, :HEADER_BYTES] = _headers(sizes - HEADER_BYTES - FOOTER_BYTES)
        after_length = HEADER_BYTES + 1 + self._length_bytes
        records[:, HEADER_BYTES + 1 : after_length] = varints(
            sizes - FOOTER_BYTES - after_length, self._length_bytes
        )
        for field in self._fixed:
            offset, values = self.offsets[field.name], columns[field.name]
            if field.kind == "int64":
                values = varints(values, field.num_bytes // math.prod(values.shape[1:]))
            elif field.kind == "float":
                values = np.ascontiguousarray(values, "<f4").view(np.uint8)
            records[:, offset : offset + field.num_bytes] = values.reshape(count, field.num_bytes)
        if self._strings:
            payloads = [records[:, HEADER_BYTES:]]
            for field in self._strings:
                strings = columns[field.name]
                payloads += [_string_heads(field, lengths(strings)), strings]
            payloads = _join(payloads)
            records = _join(
                [records[:, :HEADER_BYTES], payloads, _checksum_bytes(payloads.to_pylist(), count)]
            )
            # A new array, whose first record begins where its bytes do.
            records = np.frombuffer(records.buffers()[2], np.uint8, sizes.sum())
        else:
            records[:, -FOOTER_BYTES:] = _checksum_bytes(
                records[:, HEADER_BYTES:-FOOTER_BYTES], count
            )
        return records.reshape(-1), np.cumsum(sizes)

    def chunks(self, columns: Mapping[str, Column]) -> Iterator[slice]:
        """Yields ranges of N values by field whose records have about `_CHUNK_BYTES`, if they are about equally long."""
        sizes = self._sizes(columns)
        step = max(1, _CHUNK_BYTES * len(sizes) // int(sizes.sum()))
        for start in range(0, len(sizes), step):
            yield slice(start, start + step)

    def _sizes(self, columns: Mapping[str, Column]) -> np.ndarray:
        """Returns the length of each record, int64 [N]."""
        count = len(next(iter(columns.values())))
        return sum(
            (lengths(columns[field.name]) for field in self._strings),
            np.full(count, self.least_bytes),
        )


def _string_heads(field: Field, lengths: np.ndarray) -> np.ndarray:
    """Returns the protobuf tags and lengths that stand before the N strings of a field in their records, uint8 [N, bytes].

    Args:
      field: The field.
      lengths: Bytes of each string, [N].
    """
    key = nested(b"\x0a", field.name.encode())
    # All four lengths are of one width: enough for the string and what is around it.
    width = varint_bytes(field.num_bytes + len(key) + 40)
    room = bytes(width)
    template = b"\x0a" + room + key + b"\x12" + room + _LISTS["bytes"] + room + b"\x0a" + room
    heads = np.tile(np.frombuffer(template, np.uint8), (len(lengths), 1))
    step = 1 + width
    innermost = len(template)
    for end in (step, innermost - 2 * step, innermost - step, innermost):
        heads[:, end - width : end] = varints(
            lengths + innermost - end, width
        )  # How much comes after it.
    return heads


def _join(columns: Iterable[Column]) -> pa.LargeBinaryArray:
    """Returns the bytes of each record's columns, uint8 [N, width] or strings, one after another."""
    import pyarrow as pa
    import pyarrow.compute as pc

    strings = [
        _as_strings(column) if isinstance(column, np.ndarray) else column for column in columns
    ]
    return pc.binary_join_element_wise(*strings, pa.scalar(b"", pa.large_binary()))


def _as_strings(rows: np.ndarray) -> pa.LargeBinaryArray:
    """Returns rows of bytes, uint8 [N, width], as N strings."""
    import pyarrow as pa

    count, width = rows.shape
    buffers = [None, pa.py_buffer(np.arange(count + 1) * width), pa.py_buffer(rows.reshape(-1))]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)


def lengths(strings: pa.LargeBinaryArray) -> np.ndarray:
    """Returns how many bytes each of N strings has, int64 [N]."""
    import pyarrow.compute as pc

    return pc.binary_length(strings).to_numpy()


def take(column: Column, rows: np.ndarray) -> Column:
    """Returns the values of a column at some rows, which ascend; a range of rows without a copy."""
    if rows[-1] - rows[0] == len(rows) - 1:
        return column[rows[0] : rows[-1] + 1]
    return column[rows] if isinstance(column, np.ndarray) else column.take(rows)


def _headers(payloads: np.ndarray) -> np.ndarray:
    """Returns lengths [N] of payloads as they stand before them, uint8 [N, 12]."""
    lengths, which = np.unique(payloads.astype("<u8"), return_inverse=True)
    return np.hstack(
        [lengths[:, np.newaxis].view(np.uint8), _checksum_bytes(lengths, len(lengths))]
    )[which]


def _checksum_bytes(values: Iterable[bytes | np.ndarray], count: int) -> np.ndarray:
    """Returns the checksums as they stand behind the values, uint8 [N, 4]."""
    return checksums(values, count)[:, np.newaxis].view(np.uint8)


def checksums(values: Iterable[bytes | np.ndarray], count: int) -> np.ndarray:
    """Returns the masked CRC-32C of each of `count` values of contiguous bytes, little-endian uint32 [count]."""
    plain = np.fromiter(map(google_crc32c.value, values), np.uint32, count)
    rotated = (plain >> np.uint32(15)) | (plain << np.uint32(17))
    return (rotated + np.uint32(0xA282EAD8)).astype("<u4")


def varint_bytes(largest: int) -> int:
    """Bytes that a varint needs for every integer from 0 to `largest`."""
    return max(1, -(-largest.bit_length() // 7))


def varints(values: np.ndarray, num_bytes: int) -> np.ndarray:
    """Returns integers [...] as protobuf varints of `num_bytes` bytes each, uint8 [..., num_bytes]; zeros fill the short ones.

    A negative integer is its two's complement of 64 bits and needs 10 bytes.

    Raises:
      ValueError: If an integer needs more bytes.
    """
    groups = values.astype(np.uint64)[..., np.newaxis] >> np.arange(
        0, 7 * num_bytes, 7, dtype=np.uint64
    )
    if (groups[..., -1] > 127).any():
        raise ValueError(
            f"{values.max()} or {values.min()} does not fit into a varint of {num_bytes} bytes"
        )
    groups = (groups & np.uint64(127)).astype(np.uint8)
    groups[..., :-1] |= 128
    return groups


def nested(tag: bytes, content: bytes) -> bytes:
    """A length-delimited field."""
    size = len(content)
    return tag + varints(np.array([size]), varint_bytes(size)).tobytes() + content

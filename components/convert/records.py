"""Encoder of TFRecord files: NumPy assembles `tf.train.Example` records without TensorFlow.

    image = Field(name="image", kind="bytes", num_bytes=784)
    label = Field(name="label", kind="int64", num_bytes=1)
    records, ends = Layout([image, label]).encode({"image": images, "label": labels})

All records of a layout have the same fields. Encoding copies a template for many records at a time,
and fills in the values and checksums. Integers and lengths have a fixed width, because they are
varints padded with zero groups, which every protobuf parser accepts.

Strings differ in length, and padding would change their values. They are therefore stored behind
all other fields, and Arrow joins them with the bytes before and between them. All other fields have
the same offset in every record. An index file beside the shard says where each record starts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import google_crc32c
import numpy as np

if TYPE_CHECKING:  # Slow to import, and images of one size do without.
    import pyarrow as pa

HEADER_BYTES, FOOTER_BYTES = 12, 4  # Length and its checksum; the payload's checksum.

# Values of one field in N records: an array [N, ...], or N strings.
Column: TypeAlias = "np.ndarray | pa.LargeBinaryArray"
Kind: TypeAlias = Literal["bytes", "float", "int64", "string"]
# Size of the records that are assembled at once: enough to hide NumPy's overhead, and small enough
# for the cache.
_CHUNK_BYTES = 1 << 20
# Feature.bytes_list = 1, .float_list = 2, .int64_list = 3
_LISTS = {"bytes": b"\x0a", "float": b"\x12", "int64": b"\x1a"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """One field of every record: a value, or a vector of values, under a key of the Example.

    Attributes:
      name: Key of the feature in the `tf.train.Example`.
      kind: `bytes` for uint8 arrays [N, ...]; `float` for 32-bit floats, [N] or [N, k]; `int64`
        for integers, [N] or [N, k], stored as varints of one width; `string` for an Arrow array of
        N strings.
      num_bytes: Bytes of the field in a record, all values of a vector together. An integer
        takes 10 bytes if any value of the field is negative. For `string`, the largest length of
        a string.
    """

    name: str
    kind: Kind
    num_bytes: int


class Layout:
    """Positions of the fields in an encoded record.

    Attributes:
      offsets: Bytes from the start of a record (length header included) to the value, by the name
        of each field that is no string.
      widths: Bytes of the value, by the same names.
      record_bytes: Length of every record with its framing; None if there are string fields.
      least_bytes: Length, with its framing, of a record whose strings are empty.
    """

    def __init__(self, fields: Sequence[Field]):
        fields = sorted(fields, key=lambda field: field.name)
        self._fixed = [field for field in fields if field.kind != "string"]
        self._strings = [field for field in fields if field.kind == "string"]
        heads_bytes = sum(
            _string_heads(field, np.zeros(1, np.int64)).size for field in self._strings
        )
        # A template has the tags and lengths of all fields but strings, and zeros for their values.
        body, ends = b"", {}
        for field in self._fixed:
            values = nested(_LISTS[field.kind], nested(b"\x0a", bytes(field.num_bytes)))
            body += nested(b"\x0a", nested(b"\x0a", field.name.encode()) + nested(b"\x12", values))
            ends[field.name] = len(body)
        self._length_bytes = varint_bytes(
            len(body) + heads_bytes + sum(field.num_bytes for field in self._strings)
        )
        head = bytes(HEADER_BYTES) + b"\x0a" + bytes(self._length_bytes)
        # Strings come before the footer, so the template ends before them.
        footer = b"" if self._strings else bytes(FOOTER_BYTES)
        self._template = np.frombuffer(head + body + footer, np.uint8)
        self.offsets = {
            field.name: len(head) + ends[field.name] - field.num_bytes for field in self._fixed
        }
        self.widths = {field.name: field.num_bytes for field in self._fixed}
        self.least_bytes = len(head + body) + heads_bytes + FOOTER_BYTES
        self.record_bytes = None if self._strings else self.least_bytes

    def encode(self, columns: Mapping[str, Column]) -> tuple[np.ndarray, np.ndarray]:
        """Encodes N records.

        Args:
          columns: N values of each field, by field name, in the form that `Field.kind` says.

        Returns:
          The records, one after another, uint8 [bytes], and the end of each record in them,
          int64 [N].

        Raises:
          ValueError: If an integer needs more than the `num_bytes` of its field, or a length more
            than the bytes that are kept for it. Strings longer than their `num_bytes` may fit.
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
            joined = _join(payloads)
            framed = _join(
                [records[:, :HEADER_BYTES], joined, _checksum_bytes(joined.to_pylist(), count)]
            )
            # Arrow has made a new array, so its bytes begin with the first record.
            encoded = np.frombuffer(framed.buffers()[2], np.uint8, sizes.sum())
        else:
            records[:, -FOOTER_BYTES:] = _checksum_bytes(
                records[:, HEADER_BYTES:-FOOTER_BYTES], count
            )
            encoded = records.reshape(-1)
        return encoded, np.cumsum(sizes)

    def chunks(self, columns: Mapping[str, Column]) -> Iterator[slice]:
        """Yields slices that divide N records into chunks of about 1 MiB when they are encoded.

        The estimate holds if the records are about equally long. A slice has at least one record,
        and the last one may end beyond N.

        Args:
          columns: N values of each field, by field name; N is at least 1.
        """
        sizes = self._sizes(columns)
        step = max(1, _CHUNK_BYTES * len(sizes) // int(sizes.sum()))
        for start in range(0, len(sizes), step):
            yield slice(start, start + step)

    def _sizes(self, columns: Mapping[str, Column]) -> np.ndarray:
        """Returns the length of each record with its framing, int64 [N]."""
        count = len(next(iter(columns.values())))
        return sum(
            (lengths(columns[field.name]) for field in self._strings),
            np.full(count, self.least_bytes),
        )


def _string_heads(field: Field, lengths: np.ndarray) -> np.ndarray:
    """Returns what stands in front of each string of a field, uint8 [N, bytes].

    These are the field's name, and protobuf's tags and lengths. Lengths are padded, so that all
    rows have one size.

    Args:
      field: The field.
      lengths: Number of bytes of each string, int64 [N].
    """
    key = nested(b"\x0a", field.name.encode())
    # All four lengths have one width, enough for the longest string and the bytes around it.
    width = varint_bytes(field.num_bytes + len(key) + 40)
    room = bytes(width)
    template = b"\x0a" + room + key + b"\x12" + room + _LISTS["bytes"] + room + b"\x0a" + room
    heads = np.tile(np.frombuffer(template, np.uint8), (len(lengths), 1))
    step = 1 + width
    innermost = len(template)
    for end in (step, innermost - 2 * step, innermost - step, innermost):
        # A length counts all bytes from its own end to the end of the string.
        heads[:, end - width : end] = varints(lengths + innermost - end, width)
    return heads


def _join(columns: Iterable[Column]) -> pa.LargeBinaryArray:
    """Returns N strings, each of which joins the bytes that one record has in all columns.

    Args:
      columns: Arrays uint8 [N, width], or Arrow arrays of N strings.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    strings = [
        _as_strings(column) if isinstance(column, np.ndarray) else column for column in columns
    ]
    return pc.binary_join_element_wise(*strings, pa.scalar(b"", pa.large_binary()))


def _as_strings(rows: np.ndarray) -> pa.LargeBinaryArray:
    """Returns the rows of an array uint8 [N, width] as an Arrow array of N strings."""
    import pyarrow as pa

    count, width = rows.shape
    buffers = [None, pa.py_buffer(np.arange(count + 1) * width), pa.py_buffer(rows.reshape(-1))]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)


def lengths(strings: pa.LargeBinaryArray) -> np.ndarray:
    """Returns the number of bytes of each of N strings, int64 [N]."""
    import pyarrow.compute as pc

    return pc.binary_length(strings).to_numpy()


def take(column: Column, rows: np.ndarray) -> Column:
    """Returns the values of a column at some positions.

    Args:
      column: N values.
      rows: Positions in ascending order, int64 [M]; M is at least 1.

    Returns:
      M values: a view of the column if the positions are consecutive, else a copy.
    """
    if rows[-1] - rows[0] == len(rows) - 1:
        return column[rows[0] : rows[-1] + 1]
    return column[rows] if isinstance(column, np.ndarray) else column.take(rows)


def _headers(payloads: np.ndarray) -> np.ndarray:
    """Returns the record headers for payloads of these lengths, uint8 [N, 12]."""
    # Lengths repeat, so the checksum of each different one is computed once.
    lengths, which = np.unique(payloads.astype("<u8"), return_inverse=True)
    return np.hstack(
        [lengths[:, np.newaxis].view(np.uint8), _checksum_bytes(lengths, len(lengths))]
    )[which]


def _checksum_bytes(values: Iterable[bytes | np.ndarray], count: int) -> np.ndarray:
    """Returns the masked CRC-32C of each value as stored bytes, uint8 [count, 4]."""
    return checksums(values, count)[:, np.newaxis].view(np.uint8)


def checksums(values: Iterable[bytes | np.ndarray], count: int) -> np.ndarray:
    """Returns the masked CRC-32C of each value, as TFRecord files have it.

    Args:
      values: Bytes, or contiguous arrays.
      count: Number of the values.

    Returns:
      Little-endian uint32 [count].
    """
    plain = np.fromiter(map(google_crc32c.value, values), np.uint32, count)
    rotated = (plain >> np.uint32(15)) | (plain << np.uint32(17))
    return (rotated + np.uint32(0xA282EAD8)).astype("<u4")


def varint_bytes(largest: int) -> int:
    """Returns the number of bytes of a varint for every integer from 0 to `largest`."""
    return max(1, -(-largest.bit_length() // 7))


def varints(values: np.ndarray, num_bytes: int) -> np.ndarray:
    """Returns integers as protobuf varints of one width.

    Args:
      values: Integers [...]. A negative one is stored as its two's complement of 64 bits, in
        10 bytes.
      num_bytes: Width of each varint; shorter ones are padded with zero groups.

    Returns:
      uint8 [..., num_bytes].

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
    """Returns a length-delimited protobuf field: the tag, the content's length, the content."""
    size = len(content)
    return tag + varints(np.array([size]), varint_bytes(size)).tobytes() + content

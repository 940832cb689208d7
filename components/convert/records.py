"""Records of TFRecord files, `tf.train.Example` with the same fields, assembled by NumPy without TensorFlow.

    layout = Layout([Field(name="image", kind="bytes", num_bytes=784), Field(name="label", kind="int64", num_bytes=1)])
    records, ends = layout.encode({"image": images, "label": labels})

When every value has a fixed width, a template is copied and values and checksums are filled in, many records at a time.
Integers and lengths keep their width as varints with leading zero groups, which every protobuf parser accepts.

Strings differ in length, and a padded one would be another value. So they come last, behind every fixed field, and
are assembled with room for the longest of a chunk; then the bytes that nobody uses are dropped. Fixed fields thus lie
at the same offset in every record, and where each record starts is written to an index beside the file.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import google_crc32c
import numpy as np

from components.convert.strings import Strings

HEADER_BYTES, FOOTER_BYTES = 12, 4  # Length and its checksum; the payload's checksum.


Column = np.ndarray | Strings
_FOOTER = np.arange(-FOOTER_BYTES, 0)
_CHUNK_BYTES = 1 << 20  # assembled at once: enough to hide NumPy's overhead, small enough for the cache
# Feature.bytes_list = 1, .float_list = 2, .int64_list = 3
_LISTS = {"bytes": b"\x0a", "float": b"\x12", "int64": b"\x1a"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """One value of every record, or a vector of them, by its key in the Example.

    The kind is `bytes` for uint8 [N, ...] of `num_bytes` each; `float` for 32-bit numbers, [N] or [N, k], and `int64`
    for integers as varints of one width, 10 if any is negative, which take `num_bytes` together; `string` for `Strings` of
    at most `num_bytes`.
    """

    name: str
    kind: Literal["bytes", "float", "int64", "string"]
    num_bytes: int


class Layout:
    """Where each value lies in a record.

    Attributes:
      offsets: By name of a field that is no string, bytes from the start of the record (length header included) to the
        value.
      widths: By the same names, bytes of the value.
      record_bytes: Length of a record with its framing; None if there are strings.
      least_bytes: Length of a record whose strings are empty.
      strings: Names of the fields that are strings.
    """

    def __init__(self, fields: Sequence[Field]):
        fields = sorted(fields, key=lambda field: field.name)
        self._fixed = [field for field in fields if field.kind != "string"]
        self._strings = [_StringEntry(field) for field in fields if field.kind == "string"]
        body, ends = b"", {}
        for field in self._fixed:
            values = nested(_LISTS[field.kind], nested(b"\x0a", bytes(field.num_bytes)))
            body += nested(b"\x0a", nested(b"\x0a", field.name.encode()) + nested(b"\x12", values))
            ends[field.name] = len(body)
        self._length_bytes = varint_bytes(len(body) + sum(entry.most_bytes for entry in self._strings))
        head = bytes(HEADER_BYTES) + b"\x0a" + bytes(self._length_bytes)
        self._template = np.frombuffer(head + body, np.uint8)
        self.offsets = {field.name: len(head) + ends[field.name] - field.num_bytes for field in self._fixed}
        self.widths = {field.name: field.num_bytes for field in self._fixed}
        self.least_bytes = len(head + body) + sum(len(entry.template) for entry in self._strings) + FOOTER_BYTES
        self.record_bytes = None if self._strings else self.least_bytes
        self.strings = tuple(entry.name for entry in self._strings)

    def encode(self, columns: Mapping[str, Column]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the records of N values by field one after another, uint8, and where each of them ends, int64 [N].

        Raises:
          ValueError: If an integer needs more than the `num_bytes` of its field.
        """
        count, fixed = len(next(iter(columns.values()))), len(self._template)
        lengths = [columns[entry.name].lengths for entry in self._strings]
        sizes = sum(lengths, np.full(count, self.least_bytes))
        payloads = sizes - HEADER_BYTES - FOOTER_BYTES
        records = np.empty((count, self._room(lengths)), np.uint8)
        records[:, :fixed] = self._template
        records[:, :HEADER_BYTES] = _headers(payloads)
        after_length = HEADER_BYTES + 1 + self._length_bytes
        records[:, HEADER_BYTES + 1 : after_length] = varints(sizes - FOOTER_BYTES - after_length, self._length_bytes)
        for field in self._fixed:
            offset, values = self.offsets[field.name], columns[field.name]
            room = records[:, offset : offset + field.num_bytes]
            if field.kind == "int64":
                values = varints(values, field.num_bytes // math.prod(values.shape[1:]))
            elif field.kind == "float":
                values = np.ascontiguousarray(values, "<f4").view(np.uint8)
            room[:] = values.reshape(count, field.num_bytes)
        ends = np.cumsum(sizes)
        if self._strings:
            used, start = np.ones(records.shape, bool), fixed
            for entry in self._strings:
                start += entry.fill(records[:, start:], used[:, start:], columns[entry.name])
            records = records[used]
            slices = map(slice, (ends - payloads - FOOTER_BYTES).tolist(), (ends - FOOTER_BYTES).tolist())
            records[ends[:, np.newaxis] + _FOOTER] = _footers(map(records.__getitem__, slices), count)
        else:
            records[:, -FOOTER_BYTES:] = _footers(records[:, HEADER_BYTES:-FOOTER_BYTES], count)
        return records.reshape(-1), ends

    def chunks(self, columns: Mapping[str, Column], count: int) -> Iterator[slice]:
        """Yields ranges of `count` records that are assembled in about `_CHUNK_BYTES`, and in no more than twice that."""
        lengths = [columns[entry.name].lengths for entry in self._strings]
        start = 0
        while start < count:
            step = _CHUNK_BYTES // self.least_bytes or 1
            while step > 1 and step * self._room(part[start : start + step] for part in lengths) > 2 * _CHUNK_BYTES:
                step //= 2
            yield slice(start, start + step)
            start += step

    def _room(self, lengths: Iterable[np.ndarray]) -> int:
        """Bytes for the longest record that strings of such lengths could make."""
        return self.least_bytes + sum(int(part.max()) for part in lengths)


class _StringEntry:
    """A string's entry in the map of features, of at most `most_bytes`.

    The template is what stands before the string: its own length and those of what it is nested in.
    """

    def __init__(self, field: Field):
        self.name = field.name
        key = nested(b"\x0a", field.name.encode())
        # All four lengths are of one width: enough for the string and what is around it.
        self._width = width = varint_bytes(field.num_bytes + len(key) + 40)
        gap = bytes(width)
        template = b"\x0a" + gap + key
        self._lengths = [1]
        for tag in (b"\x12", _LISTS["bytes"], b"\x0a"):
            self._lengths.append(len(template) + 1)
            template += tag + gap
        self.template = np.frombuffer(template, np.uint8)
        self.most_bytes = len(template) + field.num_bytes

    def fill(self, records: np.ndarray, used: np.ndarray, strings: Strings) -> int:
        """Writes the entry to the start of each record and marks what is used there; returns how much is taken up."""
        before, longest = len(self.template), int(strings.lengths.max())
        records[:, :before] = self.template
        for at in self._lengths:  # each says how much comes after it
            after = at + self._width
            records[:, at:after] = varints(before - after + strings.lengths, self._width)
        end = before + longest
        mask = np.arange(longest) < strings.lengths[:, np.newaxis]
        used[:, before:end] = mask
        records[:, before:end][mask] = strings.data
        return end


def take(column: Column, rows: np.ndarray) -> Column:
    """Returns the values of a column at some rows, which ascend; a range of rows without a copy."""
    return column[rows[0] : rows[-1] + 1] if rows[-1] - rows[0] == len(rows) - 1 else column[rows]


def _headers(payloads: np.ndarray) -> np.ndarray:
    """Lengths [N] of payloads as they stand before them, uint8 [N, 12]."""
    lengths, which = np.unique(payloads.astype("<u8"), return_inverse=True)
    columns = [part.view(np.uint8).reshape(len(lengths), -1) for part in (lengths, checksums(lengths, len(lengths)))]
    return np.concatenate(columns, axis=1)[which]


def _footers(payloads: Iterable[np.ndarray], count: int) -> np.ndarray:
    """Returns the checksums behind the payloads, uint8 [N, 4]."""
    return checksums(payloads, count).view(np.uint8).reshape(count, FOOTER_BYTES)


def checksums(values: Iterable[bytes | np.ndarray], count: int) -> np.ndarray:
    """Returns the masked CRC-32C of each of `count` values of contiguous bytes, little-endian uint32 [count]."""
    plain = np.fromiter(map(google_crc32c.value, values), np.uint32, count)
    rotated = (plain >> np.uint32(15)) | (plain << np.uint32(17))
    return (rotated + np.uint32(0xA282EAD8)).astype("<u4")


def varint_bytes(largest: int) -> int:
    """Bytes that a varint needs for every integer from 0 to `largest`."""
    return max(1, -(-largest.bit_length() // 7))


def varints(values: np.ndarray, num_bytes: int) -> np.ndarray:
    """Integers [...] as varints of one width, uint8 [..., num_bytes]: leading zero groups fill the short ones.

    A negative integer is its two's complement of 64 bits and needs 10 bytes.

    Raises:
      ValueError: If an integer needs more bytes.
    """
    groups = values.astype(np.uint64)[..., np.newaxis] >> np.arange(0, 7 * num_bytes, 7, dtype=np.uint64)
    if (groups[..., -1] > 127).any():
        raise ValueError(f"{values.max()} or {values.min()} does not fit into a varint of {num_bytes} bytes")
    groups = (groups & np.uint64(127)).astype(np.uint8)
    groups[..., :-1] |= 128
    return groups


def nested(tag: bytes, content: bytes) -> bytes:
    """A length-delimited field."""
    size = len(content)
    return tag + varints(np.array([size]), varint_bytes(size)).tobytes() + content

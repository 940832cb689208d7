"""Columns of points in time, which are stored as whole seconds since 1970 in UTC, rounded down.

seconds(pa.array(["2024-01-31", "2024-01-31 12:00:00.5", "2024-01-31T12:00Z", "2024-01-31T12:00:00+01:00", "?"]))
# [1706659200, 1706702400, 1706702400, 1706698800, None]
"""

import pyarrow as pa
import pyarrow.compute as pc

TOLD = "date or time as in ISO 8601"  # what a text has to be
_ISO_8601 = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?)?$"
# Fractions go, a day becomes its midnight, and what names no zone is in UTC.
_COMPLETE = ((r"\.\d+", ""), (r"^(.{10})$", r"\1T00:00"), (r"^(.{10}.\d{2}:\d{2}(:\d{2})?)$", r"\1Z"))
_UTC = pa.timestamp("s", "UTC")


def seconds(array: pa.Array) -> pa.Array:
    """Of timestamps, dates or texts as ISO 8601 has them, int64; null where a text is none of these, or a value missing."""
    if pa.types.is_timestamp(array.type):
        array = pc.floor_temporal(array.cast(pa.timestamp(array.type.unit)), unit="second")
    elif not pa.types.is_date(array.type):
        array = pc.if_else(pc.match_substring_regex(array, _ISO_8601), array, pa.scalar(None, array.type))
        for pattern, replacement in _COMPLETE:
            array = pc.replace_substring_regex(array, pattern, replacement)
        try:
            array = array.cast(_UTC)
        except pa.ArrowInvalid:  # 2024-02-30 perhaps
            array = pa.concat_arrays([_single(array.slice(i, 1)) for i in range(len(array))])
    return array.cast(pa.timestamp("s")).cast(pa.int64())


def _single(text: pa.Array) -> pa.Array:
    try:
        return text.cast(_UTC)
    except pa.ArrowInvalid:
        return pa.nulls(1, _UTC)


def strange(texts: pa.Array, found: pa.Array) -> list[int]:
    """Where there is a text in which no time was found, in order."""
    return pc.indices_nonzero(pc.and_(texts.is_valid(), found.is_null())).to_pylist()

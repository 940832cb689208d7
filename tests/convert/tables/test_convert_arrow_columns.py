import dataclasses
import datetime as dt
import decimal
import re
import zoneinfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from components.convert.tables import arrow_columns
from components.convert.tables.schema import Column, Label, Schema
from components.convert.tables.table_block import ARROW

D, NONE = decimal.Decimal, dt.datetime(1970, 1, 1)
UTC, EXACT = dt.UTC, decimal.Context(prec=99)
SCHEMA = Schema(
    name="t", origin="t", columns={}, label=Label(column="x", classes=("a", "b")), ignore_others=False, content={}
)


def refused(row: int, what: str) -> UserError:
    return UserError(f"row {row}: {what}")


def convert(array: pa.Array, type_: str, *, header="x", default=None, name="x", missing=("",)) -> list:
    """What a column becomes, of which the schema says so much."""
    column = Column(name="x", header=header, type=type_, default=default)
    schema = dataclasses.replace(SCHEMA, columns={"x": column}, missing=missing)
    found = arrow_columns.columns(pa.record_batch([array], [name]), schema, refused)["x"]
    found.validate(full=True)
    assert found.type == ARROW[type_]
    return found.to_pylist()


NUMBERS = [pa.int8(), pa.uint16(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()]
NUMBERS += [pa.decimal32(5, 2), pa.decimal128(38, 9), pa.decimal256(60, 0)]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]
NOON = dt.datetime(2024, 1, 31, 12, 0, 0, 500_000)
BERLIN = NOON.replace(tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
BEFORE = dt.datetime(1969, 12, 31, 23, 59, 59, 500_000)


@pytest.mark.parametrize(
    ("array", "type_", "expected"),
    [
        *(
            (pa.array([2, None, 3], pa.int8()).cast(kind), type_, [2, None, 3])
            for kind in NUMBERS
            for type_ in ("float", "int")
        ),
        (pa.array([2**64 - 1], pa.uint64()), "float", [2.0**64]),
        (pa.array([1.5, float("nan")]), "float", [1.5, None]),
        (pa.array([-(2**63), 2**63 - 1]), "int", [-(2**63), 2**63 - 1]),
        (pa.array([dt.time(1, 2, 3, 999_999)], pa.time64("us")), "int", [3723]),
        *((pa.array(["é", None]).cast(pa.binary()).cast(kind), "string", ["é", None]) for kind in TEXTS),
        (pa.array(["a", None, "a"]).dictionary_encode(), "string", ["a", None, "a"]),
        (pa.array([True, None, False]), "bool", ["true", None, "false"]),
        (pa.array(["Yes", None, "f"]), "bool", ["true", None, "false"]),
        *((pa.nulls(2), type_, [None, None]) for type_ in ARROW),
        (pa.array([dt.date(2024, 1, 31), dt.date(1969, 12, 31)]), "time", [1706659200, -86400]),
        (pa.array([NOON, BEFORE, None], pa.timestamp("us")), "time", [1706702400, -1, None]),
        (pa.array([BERLIN], pa.timestamp("us", "Europe/Berlin")), "time", [1706702400 - 3600]),
        (pa.array(["2024-01-31", "", "1969-12-31 23:59:59.5"]), "time", [1706659200, None, -1]),
        (pa.array(["2024-01-31T12:00:00.123456789+01:00"]), "time", [1706702400 - 3600]),
    ],
)
def test_what_each_type_takes(array, type_, expected):
    default = {"string": "", "bool": "false"}.get(type_, 0)
    assert convert(array, type_, default=default) == expected
    # A part of a larger array is no other than a whole one.
    assert convert(pa.concat_arrays([array, array]).slice(len(array)), type_, default=default) == expected


@given(
    bits=st.sampled_from([(pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal128, 38), (pa.decimal256, 76)]),
    digits=st.lists(st.none() | st.integers(0, 76).flatmap(lambda n: st.integers(-(10**n), 10**n)), min_size=1),
    scale=st.integers(0, 76),
)
def test_of_a_decimal_the_nearest_number_is_taken_as_of_a_text_that_says_it(bits, digits, scale):
    kind, most = bits
    exact = [n and D(n).scaleb(-min(scale, most), EXACT) for n in digits if n is None or abs(n) < 10 ** min(most, 38)]
    expected = [None if value is None else float(value) for value in exact]
    assert convert(pa.array(exact, kind(most, min(scale, most))), "float", default=0.0) == expected


def test_texts_and_numbers_that_stand_for_a_missing_value():
    missing = ("", "NA", "-9")
    assert convert(pa.array(["NA", "-9", "-9.0"]), "string", default="", missing=missing) == [None, None, "-9.0"]
    assert convert(pa.array([-9, 9]), "int", default=0, missing=missing) == [None, 9]
    assert convert(pa.array([-9.0, 9], pa.float32()), "float", default=0.0, missing=missing) == [None, 9]
    for zero in ("0", "-0.0"):
        assert convert(pa.array([-0.0, 0, 9]), "float", default=0.0, missing=(zero,)) == [None, None, 9]
    for same in ("-9.0", " -9 ", "-.9e1"):
        other = ("NaN", "-inf", "9.5", "1e999999999", "1e-999999999", "9223372036854775808.0", same)
        assert convert(pa.array([-9, 9, 2**63 - 1]), "int", default=0, missing=other) == [None, 9, 2**63 - 1]
    assert convert(pa.array(["NA", "1970-01-02"]), "time", default=0, missing=missing) == [None, 86400]
    assert convert(pa.array(["NA", "no"]), "bool", default="false", missing=missing) == [None, "false"]
    assert convert(pa.array([-9, 1, 0]), "bool", default="false", missing=missing) == [None, "true", "false"]
    assert convert(pa.array([None, 1, 0]), "bool", default="true", missing=("0",)) == [None, "true", None]


NOT_TEXT = pa.array([b"a", b"\xff"]).view(pa.string())


@pytest.mark.parametrize(
    ("array", "type_", "message"),
    [
        (pa.array(["1"]), "float", "column 'x' is string, and type float takes numbers"),
        (pa.array([NOON]), "int", r"column 'x' is timestamp\[us\], and type int takes whole"),
        (pa.array([1]), "string", "column 'x' is int64, and type string takes texts"),
        (pa.array([1]), "time", "column 'x' is int64, and type time takes timestamps, dates, and texts"),
        (pa.array([1, 2**63], pa.uint64()), "int", "row 1: x: 9223372036854775808 is no 64-bit whole number"),
        (pa.array([1, 2.5]), "int", "row 1: x: 2.5 is no 64-bit whole number"),
        (pa.array([1, 1e39]), "float", r"row 1: x: 1e\+39 is no finite 32-bit number"),
        (pa.array([1, float("nan")]), "float", "row 1: x: is missing, and the schema has no default"),
        (pa.array([1, None]), "int", "row 1: x: is missing, and the schema has no default"),
        (pa.array(["a" * 2**24, "a" * (2**24 + 1)]), "string", "row 1: x: has 16,777,217 bytes; a text has at most"),
        (NOT_TEXT, "string", r"row 1: x: .* is not UTF-8"),
        (pa.array(["y", "maybe"]), "bool", "row 1: x: 'maybe' is no boolean, which is true t yes"),
        *(
            (pa.array(["2024-01-01", text]), "time", f"row 1: x: '{re.escape(text)}' is no date or time as in ISO 8601")
            for text in ("2024-02-30", "2024-1-1", "01/02/2024", "2024-01-01T25:00", "2024-01-01T12", "20240101", " ")
        ),
    ],
)
def test_what_is_not_taken_is_told_in_a_line(array, type_, message):
    with pytest.raises(UserError, match=f"^{message}") as error:
        convert(array, type_)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("names", "header", "others", "message"),
    [
        (("x", "y"), "x", False, "unknown column 'y'.*add it to the schema, or 'other_columns: ignore'"),
        (("y", "z"), "x", True, r"has no column 'x' \(it has 'y', 'z'\)"),
        (("x", "x"), "x", True, r"column 'x' is there more than once"),
    ],
)
def test_columns_that_are_not_as_the_schema_has_them_are_told_without_any_row(names, header, others, message):
    batch = pa.record_batch([pa.nulls(0, pa.int64()) for _ in names], names)
    column = Column(name="x", header=header, type="int", default=0)
    schema = dataclasses.replace(SCHEMA, columns={"x": column}, ignore_others=others)
    with pytest.raises(UserError, match=message):
        arrow_columns.columns(batch, schema, refused)


@given(
    when=st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)),
    hours=st.integers(-14, 14),
    precision=st.sampled_from(["minutes", "seconds", "milliseconds", "microseconds"]),
    separator=st.sampled_from("T "),
)
def test_a_text_is_the_second_that_python_reads_in_it(when, hours, precision, separator):
    zoned = when.replace(tzinfo=dt.timezone(dt.timedelta(hours=hours)))
    texts = [moment.isoformat(separator, precision) for moment in (zoned, when)]
    texts[0] = texts[0].replace("+00:00", "Z")
    moments = [dt.datetime.fromisoformat(text) for text in texts]
    exact = [(moment.replace(tzinfo=moment.tzinfo or UTC) - NONE.replace(tzinfo=UTC)) for moment in moments]
    expected = [moment // dt.timedelta(seconds=1) for moment in exact]
    assert convert(pa.array(texts), "time") == expected

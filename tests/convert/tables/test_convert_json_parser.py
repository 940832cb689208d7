import dataclasses
import json
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from components.convert.tables.json_parser import JsonParser, headers
from components.convert.tables.quoting import Chunk
from components.convert.tables.schema import Column, Label, Schema

HEADERS = {"f": "float", "i": "int", "s": "string", "b": "bool", "t": "time"}
SCHEMA = Schema(
    name="t",
    origin="t",
    columns={
        f"c{k}": Column(name=f"c{k}", header=header, type=kind, default={"float": 1, "int": 1, "time": 1}.get(kind, ""))
        for k, (header, kind) in enumerate(HEADERS.items())
    },
    label=Label(classes=("a",), column="c2"),
    missing=("", "-9"),
    ignore_others=True,
    content={},
)


def chunk(text: bytes) -> Chunk:
    return Chunk(text=text, start=0, line=1, delimiter=None)


def parsed(text: bytes, schema: Schema = SCHEMA) -> list[list]:
    """The values of each line, in the order of the headers."""
    return [list(row.values()) for row in JsonParser(schema).columns(chunk(text)).to_pylist()]


numbers = st.floats(-1e30, 1e30) | st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=5)


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "f": st.none() | numbers,
                "i": st.none() | st.integers(-(2**63), 2**63 - 1),
                "s": st.none() | texts,
                "b": st.none() | st.booleans(),
                "other": st.recursive(texts | numbers, lambda inner: st.lists(inner) | st.dictionaries(texts, inner)),
            },
        ),
        min_size=1,
        max_size=5,
    ),
    ascii=st.booleans(),
    spaced=st.booleans(),
)
def test_every_value_is_what_python_wrote(rows, ascii, spaced):
    lines = [json.dumps(row, ensure_ascii=ascii, separators=None if spaced else (",", ":")) for row in rows]
    expected = []
    for row in rows:
        values = [row.get("f"), row.get("i"), row.get("s"), row.get("b"), None]
        values = [None if value in ("", -9) else value for value in values]
        values[3] = None if values[3] is None else str(values[3]).lower()
        expected.append([float(v) if v is not None and k == 0 else v for k, v in enumerate(values)])
    assert parsed(" \n".join(lines).encode()) == expected


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b'{"f": "1"}', "Column(/f) changed from number to string"),
        (b'{"f": NaN}', "NaN is no number in JSON"),
        (b'{"f" 1, "s": NaN}', "Expecting ':' delimiter"),
        (b'{"s": "\xff", "f": NaN}', "can't decode byte 0xff"),
        (b'{"f": 1e39}', "c0: 1e+39 is no finite 32-bit number"),
        (b'{"i": 1.0}', "int64, couldn't parse:1.0"),
        (b'{"i": 9223372036854775808}', "int64, couldn't parse:9223372036854775808"),
        (b'{"s": "a", "s": "b"}', "Column(/s) was specified twice"),
        (b'{"s": "\xff"}', r"c2: b'\xff' is not UTF-8"),
        (b'{"s": "\\ud800"}', "surrogate pair"),
        (b'{"s": "a\x01"}', "Invalid encoding in string"),
        (b'{"t": "2024-02-30"}', "c4: '2024-02-30' is no date or time"),
        (b'{"f": 1', "b'{\"f\": 1' is no JSON object, which has a line of its own"),
        (b'"f": 1}', "is no JSON object"),
        (b"null", "b'null' is no JSON object"),
        (b'{"f": 1} {"f": 2}', "several JSON objects are on one line"),
        (b'{"f": 1}, {"f": 2}', "JSON parse error: "),
    ],
)
def test_what_json_does_not_say_is_refused_with_its_line(line, fault):
    text = chunk(b'{"f": 1}\n\n' + line + b'\n{"s": "NaN"}\n')
    with pytest.raises((UserError, pa.ArrowInvalid)):
        JsonParser(SCHEMA).columns(text)
    ((row, told),) = JsonParser(SCHEMA).faults(text)
    assert row == 1 and fault in told and "\n" not in told and "row" not in told
    if not line.startswith(b"null"):  # of which Arrow might die if it saw them
        with pytest.raises((UserError, pa.ArrowInvalid)):
            JsonParser(SCHEMA).columns(chunk(line))


@given(
    depth=st.integers(1, 300) | st.just(20_000),
    brackets=st.sampled_from([("[", "]"), ('{"a":', "}")]),
    text=st.text('[{\\"') | st.just("[" * 300),
)
def test_deep_values_are_refused_and_brackets_in_texts_are_not(depth, brackets, text):
    """The object itself is one level, so that 99 are left for the value of a key that nobody wants."""
    line = f'{{"s": "a", "z": {brackets[0] * depth}{json.dumps(text)}{brackets[1] * depth}}}'.encode()
    faults = [fault for _, fault in JsonParser(SCHEMA).faults(chunk(b'{"s": "a"}\n' + line))]
    assert faults == ["its values are nested more than 100 deep"] * (depth > 99)
    if faults:
        with pytest.raises(UserError, match=f"line 1: {faults[0]}"):
            headers(chunk(line))


def test_what_is_missing_and_required_or_nobody_wants_is_refused():
    required = dataclasses.replace(SCHEMA.columns["c1"], default=None)
    schema = dataclasses.replace(SCHEMA, columns={"c1": required})
    for text in (b"{}", b'{"i": null}', b'{"i": -9}'):
        with pytest.raises(UserError, match="c1: is missing, and the schema has no default"):
            parsed(text, schema)
    strict = dataclasses.replace(schema, ignore_others=False)
    with pytest.raises(UserError, match=re.escape("unknown column 'I' (known: i)")):
        parsed(b'{"i": 1, "I": 2}', strict)
    assert parsed(b'{"i": 1, "I": 2}', schema) == [[1]]

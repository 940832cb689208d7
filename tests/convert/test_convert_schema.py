"""Schema files are read, and what is wrong with one is named with file, line and place."""

import copy
import json
import pathlib
import pickle

import pytest
import yaml

from common.errors import UserError
from common.manifest import Encoding
from components.convert import schema as schemas
from components.convert.schema import TableSchema, load, table_schema

GOOD = {
    "name": "trips",
    "origin": "somewhere",
    "columns": {
        "fare": {"type": "float", "unit": "USD"},
        "tips": {"type": "float", "default": 0},
        "seconds": {"type": "int", "default": 0, "header": "Trip Seconds"},
        "company": {"type": "string", "default": ""},
    },
    "label": {"condition": "tips > 0.2 * fare", "classes": ["no", "yes"]},
    "deep": [
        {"column": "fare", "numeric": "z_score"},
        {"column": "company", "vocabulary": 9, "embedding": 3},
        {"column": "seconds", "vocabulary": 4},
    ],
    "wide": [
        {"column": "seconds", "buckets": [1, 2.5]},
        {"column": "company", "hash_buckets": 10},
        {"columns": ["fare", "seconds"], "hash_buckets": 99},
    ],
}
IMAGES = {
    "name": "flowers",
    "origin": "a garden",
    "image": "image/encoded",
    "label": "y",
    "classes": ["a", "b"],
}
BOXES = {key: value for key, value in IMAGES.items() if key != "classes"}
TIME = {"columns": {**GOOD["columns"], "seconds": {"type": "time"}}, "deep": GOOD["deep"][:2]}


def read(tmp_path: pathlib.Path, data) -> TableSchema:
    path = tmp_path / "schema.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data, sort_keys=False))
    return load(path)


def change(place: str, value) -> dict:
    """Returns the good schema with one thing changed or, with None, left out."""
    data = copy.deepcopy(GOOD)
    *parents, key = [int(part) if part.isdigit() else part for part in place.split(".")]
    node = data
    for part in parents:
        node = node[part]
    if value is None:
        del node[key]
    else:
        node[key] = value
    return data


def test_table_schema_file(tmp_path):
    extra = {
        "filter": "fare > 0 AND seconds IS NOT NULL",
        "missing": ["", "NA"],
        "other_columns": "ignore",
    }
    schema = read(tmp_path, {**GOOD, **extra})
    columns = [
        (column.header, column.dtype, repr(column.default), column.unit)
        for column in schema.columns.values()
    ]
    assert columns == [
        ("fare", "float32", "None", "USD"),
        ("tips", "float32", "0.0", None),
        ("Trip Seconds", "int64", "0", None),
        ("company", "string", "''", None),
    ]
    assert (schema.label.classes, schema.label.columns) == (("no", "yes"), {"tips", "fare"})
    assert (schema.filter, schema.missing, schema.ignore_others) == (
        extra["filter"],
        ("", "NA"),
        True,
    )
    assert [(entry.encoding, entry.vocabulary_size) for entry in schema.deep + schema.wide] == [
        (Encoding(kind="numeric", columns=("fare",)), None),
        (Encoding(kind="vocabulary", columns=("company",), embedding=3), 9),
        (Encoding(kind="vocabulary", columns=("seconds",)), 4),
        (Encoding(kind="buckets", columns=("seconds",), boundaries=(1.0, 2.5)), None),
        (Encoding(kind="hash", columns=("company",), hash_buckets=10), None),
        (Encoding(kind="cross", columns=("fare", "seconds"), hash_buckets=99), None),
    ]
    assert schema.content == {**GOOD, **extra} and pickle.loads(pickle.dumps(schema)) == schema


def test_table_schema_defaults(tmp_path):
    schema = read(tmp_path, GOOD)
    assert (schema.missing, schema.ignore_others, schema.delimiter) == (("",), False, None)
    assert read(tmp_path, {**GOOD, "delimiter": "\t"}).delimiter == "\t"


@pytest.mark.parametrize(
    ("label", "used"),
    [
        ({"regression": "label"}, {"label"}),
        ({"regression": ["when", "a"]}, {"when", "a"}),
        ({"multi_label": {"a": "wet", "b": "a", "c": "tips > 0"}}, {"wet", "a", "tips"}),
    ],
)
def test_label_columns(tmp_path, label, used):
    """A target may be a column that is a word of SQL, and one that is named as the label is has no feature of its own."""
    columns = {
        **GOOD["columns"],
        "when": {"type": "int"},
        "wet": {"type": "bool"},
        "a": {"type": "int"},
    }
    named = {"label": {"type": "float"}} if "label" in used else {}
    schema = read(tmp_path, {**GOOD, "columns": {**columns, **named}, "label": label})
    assert schema.label.columns == used and [column.name for column in schema.stored] == [*columns]


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-31",
        "'2024-01-31'",
        "2024-01-31 00:00:00",
        "2024-01-31T01:00:00+01:00",
        "'2024-01-31T00:00Z'",
    ],
)
def test_split_time_formats(tmp_path, text):
    schema = read(
        tmp_path,
        yaml.safe_dump({**GOOD, **TIME}) + f"split: {{time: seconds, test_from: {text}}}\n",
    )
    assert schema.split.starts == {"test": 1706659200}
    assert schema.columns["seconds"].unit == "seconds since 1970-01-01 UTC"
    assert json.loads(json.dumps(schema.content)) == schema.content


@pytest.mark.parametrize("text", ["'2024-02-30'", "20240131", "[2024-01-31]"])
def test_split_time_is_refused(tmp_path, text):
    with pytest.raises(UserError, match=r"schema\.yaml: line \d+: split"):
        read(
            tmp_path,
            yaml.safe_dump({**GOOD, **TIME}) + f"split: {{time: seconds, test_from: {text}}}\n",
        )


def test_image_schema_counts_classes(tmp_path):
    schema = read(tmp_path, {**IMAGES, "classes": 3, "label_offset": 1, "shape": [4, 5, 1]})
    assert (schema.classes, schema.first_label, schema.shape) == (("1", "2", "3"), 1, (4, 5, 1))


@pytest.mark.parametrize(("name", "num_columns"), [("taxi", 18), ("taxi_cents", 17)])
def test_shipped_schemas(name, num_columns):
    schema = load(pathlib.Path(schemas.__file__).with_name("schemas") / f"{name}.yaml")
    assert (schema.name, len(schema.columns), len(schema.deep), len(schema.wide)) == (
        name,
        num_columns,
        5,
        3,
    )


AB = ["a", "b"]
WRONG = [
    (
        "split",
        {"group": "company", "test_from": 3},
        "split: needs either group, with a column, or time",
    ),
    (
        "split",
        {"time": "company", "test_from": 3},
        r"split: company is a string; needed is .*int or time",
    ),
    ("split", {"group": "fare"}, "split: fare is a float; needed is"),
    (
        "split",
        {"time": "seconds", "test_from": "2024-01-01"},
        r"split: 2024.* is no value of seconds, which is of type int",
    ),
    ("split", {"time": "seconds", "test_from": True}, r"split\.test_from: True is no whole number"),
    (
        "split",
        {"time": "seconds", "test_from": 3, "validation_from": 3},
        "split: validation_from is not before",
    ),
    ("name", None, r"name: missing"),
    ("nmae", "x", r"top level: unknown key 'nmae'; did you mean 'name'"),
    (
        "columns.fare.type",
        "flot",
        r"columns\.fare\.type: unknown value 'flot'; did you mean 'float'",
    ),
    ("columns.fare.default", 1e39, r"columns\.fare\.default: 1e\+39 is no float"),
    ("columns.fare.default", True, r"columns\.fare\.default: True is no float"),
    ("columns.seconds.default", 2**63, r"columns\.seconds\.default: 9\d+ is no int"),
    (
        "columns.tips",
        {"type": "time", "default": "2024"},
        r"columns\.tips\.default: '2024' is no time; write how many",
    ),
    (
        "columns.fare.indicator",
        True,
        r"columns\.fare\.indicator: needs a default, and that no column is named fare_m",
    ),
    ("columns.fare.header", "tips", r"columns\.tips: another column has this header too"),
    (
        "columns.FARE",
        {"type": "int"},
        r"columns\.FARE: another column has this name, but for capitals, too",
    ),
    ("columns.a b", {"type": "int"}, r"columns\.a b: a name is a letter, then.*as header"),
    ("columns.label", {"type": "int"}, r"columns\.label: what is predicted has that name"),
    ("filter", "fair > 1", r"filter: fair > 1: unknown column 'fair'; did you mean 'fare'"),
    ("label.classes", ["a", "b", "c"], "label: a condition has two classes"),
    ("label.classes", None, "label: needs classes for a column or a condition"),
    ("label.classes", ["a", "a"], r"label\.classes: \['a', 'a'\] are not at least two different"),
    (
        "label.condition",
        None,
        "label: needs exactly one of column, condition, regression, multi_label",
    ),
    (
        "label.condition",
        "seconds > fare",
        r"label\.condition: follows from the inputs fare, seconds; take one",
    ),
    ("label", {"column": "fare", "classes": AB}, r"label\.column: fare is a float"),
    (
        "label",
        {"regression": ["fare", "fare"]},
        r"label\.regression: \['fare', 'fare'\] are not different columns",
    ),
    (
        "label",
        {"regression": {"c": "company"}},
        r"label\.regression\.c: \"company\": is a VARCHAR, where a number",
    ),
    ("label", {"regression": "tips"}, r"label\.regression\.tips: nothing can stand in"),
    (
        "label",
        {"regression": {"a": "2 * fare"}},
        r"label\.regression\.a: follows from the inputs fare",
    ),
    (
        "label",
        {"regression": "fare", "classes": AB},
        "label: needs classes for a column or a condition",
    ),
    ("label", {"multi_label": "seconds"}, r"label: one label is two classes"),
    (
        "label",
        {"multi_label": ["tips", "fare"]},
        r"label\.multi_label\.tips: \"tips\": is a DOUBLE, where a condition",
    ),
    ("deep.0.column", "fair", r"deep\[0\]: unknown column 'fair'; did you mean 'fare'"),
    (
        "deep.0.numeric",
        None,
        r"deep\[0\]: needs exactly one of numeric, buckets, vocabulary, hash_buckets",
    ),
    (
        "deep.0.column",
        "company",
        r"deep\[0\]: company is a string; needed is a column of type float or int or time",
    ),
    (
        "deep.0",
        {"column": "company", "words": 9, "embedding": 2},
        r"deep\[0\]: embedding is for categories",
    ),
    ("deep.1.vocabulary", 0, r"deep\[1\]\.vocabulary: 0 is not a whole number from 1"),
    ("wide.0.buckets", [2, 1], r"wide\[0\]\.buckets: \[2\.0, 1\.0\] are not ascending"),
    ("wide.0.buckets", [float("nan")], r"wide\[0\]\.buckets\[0\]: nan"),
    ("wide.1.embedding", 3, r"wide\[1\]: embedding is for deep"),
    (
        "wide.2",
        {"columns": ["fare", "tips"], "vocabulary": 3},
        r"wide\[2\]: a cross of columns has hash_buckets",
    ),
    (
        "wide.2.columns",
        ["fare", "fare"],
        r"wide\[2\]\.columns: \['fare', 'fare'\] are not at least two different",
    ),
    ("missing", [-999], r"missing\[0\]: -999 is not a text; put it in quotes"),
]


@pytest.mark.parametrize(("place", "value", "message"), WRONG)
def test_mistake_is_named_with_place(tmp_path, place, value, message):
    with pytest.raises(
        UserError, match=rf"^{tmp_path}/schema\.yaml: (line \d+: )?{message}"
    ) as error:
        read(tmp_path, change(place, value))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        (5, "type: float", "type: flot"),
        (18, "condition: tips", "condition: tipz"),
        (31, "  buckets:", "  bukkets:"),
    ],
)
def test_mistake_is_named_with_line(tmp_path, line, old, new):
    text = yaml.safe_dump(GOOD, sort_keys=False).replace(old, new, 1)
    with pytest.raises(UserError, match=rf"schema\.yaml: line {line}: "):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({**GOOD, "deep": [], "wide": []}, "neither deep nor wide"),
        (
            "user,fare\n" * 999,
            r"top level: '.{1,40}' is not a mapping; write 'key: value' of name, ",
        ),
        ("columns: !!python/object/apply:os.getcwd []", "not valid YAML"),
        ({**IMAGES, "classes": ["a"]}, r"classes: \['a'\] are not at least two different names"),
        (BOXES, "needs classes for a column"),
        ({**IMAGES, "label_offset": True}, "label_offset: True cannot be used"),
        ({**IMAGES, "shape": [4, 5, 4]}, r"shape\[2\]: unknown value '4' \(known: 1, 3\)"),
    ],
)
def test_unusable_schema_is_refused(tmp_path, data, message):
    with pytest.raises(UserError, match=rf"schema\.yaml: .*{message}"):
        read(tmp_path, data)


def test_schema_of_other_source_is_refused(tmp_path):
    for data, message in (
        (
            IMAGES,
            "schema.yaml: is of images in TFRecord files; dataset 'jsonl' needs one with columns",
        ),
        ({**GOOD, "delimiter": ";"}, "schema.yaml: has a delimiter, and dataset 'jsonl' has none"),
    ):
        read(tmp_path, data)
        with pytest.raises(UserError, match=message):
            table_schema(tmp_path / "schema.yaml", "jsonl", delimited=False)
    with pytest.raises(UserError, match="dataset 'csv' needs --schema FILE"):
        table_schema(None, "csv", delimited=True)
    with pytest.raises(UserError, match=r"none\.yaml: cannot be read \(No such file"):
        load(tmp_path / "none.yaml")

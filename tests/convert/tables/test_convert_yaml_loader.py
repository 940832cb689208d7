import copy
import json
import pathlib
import re

import pytest
import yaml

from common.errors import UserError
from common.manifest import Encoding
from components.convert.tables import yaml_loader
from components.convert.tables.schema import SplitRule

GOOD = {
    "name": "trips",
    "origin": "somewhere",
    "columns": {
        "fare": {"type": "float", "unit": "USD"},
        "tips": {"type": "float", "default": 0},
        "seconds": {"type": "int", "default": 0, "header": "Trip Seconds"},
        "company": {"type": "string", "default": ""},
    },
    "label": {"condition": {"greater": ["tips", {"times": [0.2, "fare"]}]}, "classes": ["no", "yes"]},
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


def load(tmp_path: pathlib.Path, data):
    path = tmp_path / "schema.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data, sort_keys=False))
    return yaml_loader.load(path)


def test_everything_is_read(tmp_path):
    schema = load(
        tmp_path, {**GOOD, "filter": {"greater": ["fare", 0]}, "missing": ["", "NA"], "other_columns": "ignore"}
    )
    assert (schema.name, schema.origin, schema.label.classes) == ("trips", "somewhere", ("no", "yes"))
    assert [column.header for column in schema.stored] == ["fare", "tips", "Trip Seconds", "company"]
    assert [column.dtype for column in schema.stored] == ["float32", "float32", "int64", "string"]
    assert [column.default for column in schema.stored] == [None, 0.0, 0, ""]
    assert schema.label.condition.columns == {"tips", "fare"} and schema.filter.columns == {"fare"}
    assert schema.missing == ("", "NA") and schema.ignore_others
    assert [(entry.encoding, entry.vocabulary_size) for entry in schema.deep + schema.wide] == [
        (Encoding(kind="numeric", columns=("fare",)), None),
        (Encoding(kind="vocabulary", columns=("company",), embedding=3), 9),
        (Encoding(kind="vocabulary", columns=("seconds",)), 4),
        (Encoding(kind="buckets", columns=("seconds",), boundaries=(1.0, 2.5)), None),
        (Encoding(kind="hash", columns=("company",), hash_buckets=10), None),
        (Encoding(kind="cross", columns=("fare", "seconds"), hash_buckets=99), None),
    ]
    assert load(tmp_path, {**GOOD, "delimiter": "\t"}).delimiter == "\t" and load(tmp_path, GOOD).delimiter is None
    assert not load(tmp_path, GOOD).ignore_others and load(tmp_path, GOOD).missing == ("",)


def test_a_time_is_a_number_of_seconds_and_its_unit_is_known(tmp_path):
    data = change("columns.seconds", {"type": "time", "default": 5})
    data["deep"][2] = {"column": "seconds", "numeric": "z_score"}
    column = load(tmp_path, {**data, "filter": {"greater": ["seconds", 0]}}).columns["seconds"]
    assert (column.dtype, column.default, column.unit) == ("int64", 5, "seconds since 1970-01-01 UTC")


def test_what_decides_about_splits_is_read(tmp_path):
    assert load(tmp_path, GOOD).split is None
    assert load(tmp_path, {**GOOD, "split": {"group": "company"}}).split == SplitRule(column="company")
    rule = {"time": "seconds", "test_from": 9, "validation_from": -3}
    found = load(tmp_path, {**GOOD, "split": rule}).split
    assert found == SplitRule(column="seconds", starts={"test": 9, "validation": -3})


@pytest.mark.parametrize(
    "text", ["2024-01-31", "'2024-01-31'", "2024-01-31 00:00:00", "2024-01-31T01:00:00+01:00", "'2024-01-31T00:00Z'"]
)
def test_a_time_that_begins_a_split_is_a_date_or_time_quoted_or_not(tmp_path, text):
    data = change("columns.seconds", {"type": "time"})
    data["deep"][2] = {"column": "seconds", "numeric": "z_score"}
    written = yaml.safe_dump(data) + "split: {time: seconds, test_from: %s}\n"
    schema = load(tmp_path, written % text)
    assert schema.split == SplitRule(column="seconds", starts={"test": 1706659200})
    assert json.loads(json.dumps(schema.content)) == schema.content
    for wrong in ("2024-02-30", "20240131", "'yesterday'", "[2024-01-31]"):
        with pytest.raises(UserError, match=r"split\.test_from: .* is no date or time as in ISO 8601"):
            load(tmp_path, written % f"'{wrong}'" if wrong == "2024-02-30" else written % wrong)


OF_IMAGES = {"name": "flowers", "origin": "a garden", "image": "image/encoded", "label": "y", "classes": ["a", "b"]}


OF_TARGETS = {key: value for key, value in OF_IMAGES.items() if key != "classes"}


def test_a_schema_of_images_is_read(tmp_path):
    boxes = load(tmp_path, {**OF_TARGETS, "label": {"regression": {"left": "box[0]", "age": "age"}}})
    assert (boxes.task, boxes.targets, boxes.classes) == ("regression", {"left": "box[0]", "age": "age"}, ())
    schema = load(tmp_path, OF_IMAGES)
    assert (schema.image, schema.label, schema.classes) == ("image/encoded", "y", ("a", "b"))
    assert (schema.first_label, schema.shape, schema.content) == (0, None, OF_IMAGES)
    counted = load(tmp_path, {**OF_IMAGES, "classes": 3, "label_offset": 1, "shape": [4, 5, 1]})
    assert (counted.classes, counted.first_label, counted.shape) == (("1", "2", "3"), 1, (4, 5, 1))


@pytest.mark.parametrize("name", ["taxi", "taxi_cents"])
def test_the_shipped_schemas_take_what_the_sample_gives_its_model(name):
    schema = yaml_loader.load(pathlib.Path(yaml_loader.__file__).with_name("schemas") / f"{name}.yaml")
    assert schema.name == name and len(schema.columns) == {"taxi": 18, "taxi_cents": 17}[name]
    tens = tuple(range(5, 51, 5))
    assert {(e.encoding.kind, e.encoding.columns, e.encoding.embedding) for e in schema.deep} == {
        ("numeric", ("fare",), None),
        ("numeric", ("trip_miles",), None),
        ("numeric", ("trip_seconds",), None),
        ("vocabulary", ("payment_type",), 3),
        ("hash", ("company",), 10),
    }
    assert [(e.encoding.boundaries, e.encoding.hash_buckets) for e in schema.wide] == [
        (tens, None),
        ((900, 1800, 2700, 3600), None),
        (None, 10_000),
    ]


def change(place: str, value) -> dict:
    """The good schema with one thing changed or, with None, left out."""
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


AB = ["a", "b"]
LABELS = [
    ({"column": "fare", "classes": AB}, r"label\.column: fare is a float"),
    ({"regression": ["fare", "fare"]}, r"label\.regression: \['fare', 'fare'\] are not different columns"),
    ({"regression": {"c": "company"}}, r"label\.regression\.c: a text, where a number is needed"),
    ({"regression": "tips"}, r"label\.regression\.tips: nothing can stand in .* take the default of tips"),
    ({"regression": "fare"}, r"label\.regression: fare is what is predicted, and an input too"),
    ({"regression": {"a": {"times": [2, "fare"]}}}, r"label\.regression\.a: follows from the inputs fare"),
    ({"multi_label": "seconds"}, r"label\.multi_label: is one label, and so two classes"),
    ({"multi_label": ["tips", "fare"]}, r"label\.multi_label\.tips: tips is a float; needed is a bool, an int"),
]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("deep", "fare " * 999, r"deep: 'fare [^']{1,40}' is no list"),
        ("split", {}, "split: needs either group or time, with a column"),
        ("split", {"time": "company", "test_from": 3}, r"split\.time: company is a string; needed is a time or an int"),
        ("split", {"time": "seconds", "test_from": "2024-01-01"}, r"split\.test_from: '2024-01-01' is no whole number"),
        ("split", {"time": "seconds", "test_from": 3, "validation_from": 3}, r"split\.validation_from: is not before"),
        ("name", None, r"top level: name is missing"),
        ("nmae", "x", r"top level: unknown key 'nmae'; did you mean 'name'"),
        ("columns.fare.type", "flot", r"columns\.fare\.type: 'flot' is none of 'float', 'int', 'string'"),
        ("columns.fare.default", 1e39, r"columns\.fare\.default: 1e\+39 is no float"),
        (
            "columns.tips",
            {"type": "time", "default": "2024"},
            r"columns\.tips\.default: '2024' is no time; write how many",
        ),
        ("columns.fare.header", "tips", r"columns: 'tips' is the header of more than one"),
        ("columns.a b", {"type": "int"}, r"columns\.a b: a name is a letter, then.*as header"),
        ("columns.label", {"type": "int"}, r"columns\.label: what is predicted has that name"),
        ("label.classes", ["a", "b", "c"], r"label\.classes: a condition has two"),
        ("label.condition", None, r"label: needs either column or condition"),
        *(("label", *wrong) for wrong in LABELS),
        ("deep.0.column", "fair", r"deep\[0\]\.column: unknown column 'fair'; did you mean 'fare'"),
        ("deep.0.numeric", None, r"deep\[0\]: needs exactly one of numeric, buckets, vocabulary, hash_buckets"),
        (
            "deep.0.column",
            "company",
            r"deep\[0\]\.numeric: is for columns of type float or int or time; company is a string",
        ),
        ("deep.0", {"column": "company", "words": 9, "embedding": 2}, r"deep\[0\]: a model of your own embeds words"),
        ("wide.0.buckets", [2, 1], r"wide\[0\]\.buckets: \[2, 1\] are not ascending"),
        ("wide.1.embedding", 3, r"wide: embedding is for deep"),
        ("wide.2", {"columns": ["fare", "tips"], "vocabulary": 3}, r"wide\[2\]: a cross of columns has hash_buckets"),
        ("delimiter", "::", r"delimiter: '::' is none of ',', ';', '\\t', '\|'"),
    ],
)
def test_what_makes_no_sense_is_told_with_file_and_place(tmp_path, place, value, message):
    with pytest.raises(UserError, match=rf"^{re.escape(str(tmp_path))}/schema\.yaml: {message}") as error:
        load(tmp_path, change(place, value))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({**GOOD, "deep": [], "wide": []}, "neither deep nor wide"),
        ("user,fare\n" * 999, r"top level: '.{1,40}' is no mapping; write 'key: value' of columns, "),
        ("columns: !!python/object/apply:os.getcwd []", "not valid YAML"),
        ({**OF_IMAGES, "classes": ["a"]}, r"classes: \['a'\] are not at least two different names"),
        ({**OF_IMAGES, "label": {"regression": "age"}}, "top level: unknown key 'classes'"),
        ({**OF_IMAGES, "label_offset": True}, "label_offset: True is no whole number"),
        ({**OF_IMAGES, "shape": [4, 5, 4]}, "shape: .* with 1 or 3 channels"),
    ],
)
def test_what_is_no_schema_or_one_of_images_that_makes_no_sense_is_refused(tmp_path, data, message):
    with pytest.raises(UserError, match=rf"schema\.yaml: .*{message}"):
        load(tmp_path, data)

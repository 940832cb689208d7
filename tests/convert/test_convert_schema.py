"""Schema files are read, and what is wrong with one is named with file, line and place."""

import json
import pathlib

import pytest
import yaml

from common.manifest import Encoding
from components.convert import schema as schemas
from components.convert.schema import TableSchema
from components.convert.sources.tables import TableSource
from tests.changed import changed
from tests.errors import user_error
from tests.programs import run_python

GOOD = yaml.safe_load("""
name: trips
origin: somewhere
columns:
  fare: {type: float, unit: USD}
  tips: {type: float, default: 0}
  seconds: {type: int, default: 0, header: Trip Seconds}
  company: {type: string, default: ""}
label: {condition: tips > 0.2 * fare, classes: ["no", "yes"]}
deep:
- {column: fare, numeric: z_score}
- {column: company, vocabulary: 9, embedding: 3}
wide:
- {column: seconds, buckets: [1, 2.5]}
- {column: company, hash_buckets: 10}
- {columns: [fare, seconds], hash_buckets: 99}
""")


@pytest.fixture
def read(tmp_path):
    """Loads a schema file of this text or content."""

    def run(data):
        text = data if isinstance(data, str) else yaml.safe_dump(data, sort_keys=False)
        (tmp_path / "schema.yaml").write_text(text)
        return TableSchema.load(tmp_path / "schema.yaml")

    return run


def change(place, value):
    """Returns the good schema with one thing changed or, with None, left out."""
    return changed(GOOD, place, value)


def test_table_schema_file(read):
    schema = read({**GOOD, "missing": ["", "NA"]})
    fare, tips, seconds, company = schema.columns.values()
    assert (fare.header, fare.dtype, fare.default, fare.unit) == ("fare", "float32", None, "USD")
    assert (seconds.header, seconds.dtype, company.default) == ("Trip Seconds", "int64", "")
    assert repr(tips.default) == "0.0"
    assert (schema.label.classes, schema.label.columns) == (("no", "yes"), {"tips", "fare"})
    assert (schema.missing, schema.other_columns, schema.delimiter) == (("", "NA"), "refuse", None)
    assert schema.wide[2].encoding == Encoding(
        kind="cross", columns=("fare", "seconds"), hash_buckets=99
    )


def test_target_is_named_as_label(read):
    columns = {**GOOD["columns"], "label": {"type": "int"}}
    schema = read({**GOOD, "columns": columns, "label": {"regression": "label"}})
    assert {column.name for column in schema.stored} == GOOD["columns"].keys()


def timed(split):
    """Returns a schema that splits by a column of times."""
    columns = {**GOOD["columns"], "at": {"type": "time"}}
    return f"{yaml.safe_dump({**GOOD, 'columns': columns})}split: {{time: at, test_from: {split}}}"


@pytest.mark.parametrize("text", ["2024-01-31", "2024-01-31T01:00:00+01:00"])
def test_split_time_formats(read, text):
    schema = read(timed(text))
    assert schema.split.starts == {"test": 1706659200}
    assert schema.columns["at"].unit == "seconds since 1970-01-01 UTC"
    assert json.loads(json.dumps(schema.content)) == schema.content


def test_time_without_zone_is_utc():
    code = "from components.convert.schema import SplitRule as S; "
    code += "print(S(time='t', test_from='1970-01-02').starts)"
    assert run_python("-c", code, env={"TZ": "Asia/Tokyo"}) == "{'test': 86400}\n"


@pytest.mark.parametrize("name", ["taxi", "taxi_cents"])
def test_shipped_schemas(name):
    path = pathlib.Path(schemas.__file__).with_name("schemas") / f"{name}.yaml"
    assert TableSchema.load(path).name == name


AB = ["a", "b"]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("split", {"group": "company", "test_from": 3}, "split: needs either group"),
        ("split", {"time": "company", "test_from": 3}, "split: company is a string"),
        ("split", {"time": "seconds", "test_from": "2024-01-01"}, "split: 2024"),
        ("split", {"time": "seconds", "test_from": 3, "validation_from": 3}, "split: validation"),
        ("name", None, "name: missing"),
        ("nmae", "x", "top level: unknown key 'nmae'; did you mean 'name'"),
        ("columns.fare.type", "flot", r"columns\.fare\.type: .*did you mean 'float'"),
        ("columns.fare.default", 1e39, r"columns\.fare\.default"),
        ("columns.tips", {"type": "time", "default": "2024"}, r"columns\.tips\.default"),
        ("columns.fare.indicator", True, r"columns\.fare\.indic"),
        ("columns.fare.header", "tips", r"columns\.tips: another"),
        ("columns.a b", {"type": "int"}, r"columns\.a b: a name"),
        ("filter", "fair > 1", "filter: .*'fair'; did you mean 'fare'"),
        ("label.classes", [*AB, "c"], "label: a condition has two"),
        ("label.condition", None, "label: needs exactly"),
        ("label.condition", "fare > 9", r"label\.condition: follows from the inputs fare"),
        ("label", {"regression": {"c": "company"}}, r"label\.regression\.c"),
        ("label", {"regression": "tips"}, r"label\.regression\.tips: nothing can stand in"),
        ("label", {"multi_label": "seconds"}, "label: one label is"),
        ("deep.0.column", "fair", r"deep\[0\]: .*'fair'; did you mean 'fare'"),
        ("deep.0.column", "company", r"deep\[0\]: company is"),
        ("wide.0.buckets", [2, 1], r"wide\[0\]\.buckets: .* are not ascending"),
        ("missing", [-999], r"missing\[0\]: -999 is not a text"),
    ],
)
def test_mistake_is_named_with_place(tmp_path, read, place, value, message):
    with user_error(rf"^{tmp_path}/schema\.yaml: (line \d+: )?{message}"):
        read(change(place, value))


def test_mistake_is_named_with_line(read):
    text = yaml.safe_dump(GOOD, sort_keys=False).replace("  buckets:", "  bukkets:")
    with user_error(r"schema\.yaml: line 29: "):
        read(text)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({**GOOD, "deep": [], "wide": []}, "neither deep nor wide"),
        ("user,fare\n" * 999, "top level: '.{1,40}' is not a mapping; write"),
        ("columns: !!python/object/apply:os.getcwd []", "not valid YAML"),
        (timed("'2024-02-30'"), r"line \d+: split"),
    ],
)
def test_unusable_schema_is_refused(read, data, message):
    with user_error(rf"schema\.yaml: .*{message}"):
        read(data)


def test_schema_of_other_source_is_refused(tmp_path, read):
    read({**GOOD, "delimiter": ";"})
    with user_error("schema.yaml: has a delimiter"):
        TableSource(name="jsonl", kind="jsonl", schema=tmp_path / "schema.yaml").load_schema()
    with user_error("dataset 'csv' needs --schema FILE"):
        TableSource(name="csv").load_schema()

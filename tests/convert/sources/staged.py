"""Tables that are staged, for tests."""

import csv
import io

from components.convert.schema import Column, Input, Label, TableSchema
from components.convert.source import Opening
from components.convert.sources.tables import TableSource
from components.convert.splits import Splits

DEFAULTS = {"float": 1.5, "int": -7, "string": "none", "bool": False, "time": 0}


def columns(**types):
    """Returns columns by name, each of a type such as `int` or, with a default, `int?`."""
    columns = {}
    for name, kind in types.items():
        plain = kind.removesuffix("?")
        default = {} if kind == plain else {"default": DEFAULTS[plain]}
        columns[name] = Column(name=name, header=name, type=plain, **default)
    return columns


INPUT = Input(column="f", numeric="z_score")


def make_schema(label=None, **changes):
    fields = {"columns": columns(f="float", i="int?", s="string?", y="int"), "deep": (INPUT,)}
    label = label or Label(classes=("no", "yes"), column="y")
    return TableSchema(**{"name": "t", "origin": "t", "label": label, **fields, **changes})


SCHEMA = make_schema()


def read(source, path, directory, **opening):
    work = directory / "work"
    work.mkdir(exist_ok=True)
    return source.open(str(path), Opening(directory=str(work), splits=Splits(), **opening))


def rows(examples):
    """Returns all rows in order, None where a value is missing."""
    result = []
    for piece in examples.pieces:
        for block in examples.blocks(piece):
            columns = {name: values.tolist() for name, values in block.columns.items()}
            for name, is_missing in block.missing.items():
                pairs = zip(columns[name], is_missing, strict=True)
                columns[name] = [None if missing else value for value, missing in pairs]
            for row in zip(*columns.values(), strict=True):
                texts = (value.decode() if isinstance(value, bytes) else value for value in row)
                result.append(dict(zip(columns, texts, strict=True)))
    return result


def write_csv(path, cells, *, line_end="\n", quoting=csv.QUOTE_ALL):
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator=line_end, quoting=quoting).writerows(cells)
    path.write_bytes(file.getvalue().encode())
    return path


def read_csv(directory, content, schema=SCHEMA, **options):
    path = directory / "t.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read(TableSource(name="csv", schema=schema, **options), path, directory)

import csv

import numpy as np
import pytest
import trips

from trainer.base.manifest import Manifest
from trainer.data import records

NUMBERS = {
    "columns": {"a": {"type": "float"}, "b": {"type": "int"}, "tip": {"type": "int"}},
    "deep": [{"column": "a", "numeric": "z_score"}, {"column": "b", "numeric": "z_score"}],
    "wide": [],
}


@pytest.mark.parametrize("strings", [True, False])
def test_all_rows_of_all_splits_are_those_of_the_file(tmp_path, strings):
    """With strings the records differ in length; without they do not, whatever the numbers are."""
    if strings:
        data = trips.make(tmp_path)
    else:
        values = [{"a": i / 7, "b": i**5 - 2**40, "tip": i % 2} for i in range(400)]
        data = trips.make(tmp_path, values, {**trips.SCHEMA, **NUMBERS})
    manifest = Manifest.load(data)
    assert (manifest.record_bytes is None) == strings
    read = [records.resident(manifest, str(data), split) for split in manifest.splits]
    columns = {f.name: np.concatenate([part[f.name].numpy() for part in read]) for f in manifest.features}
    found = sorted(zip(*(column.tolist() for column in columns.values()), strict=True))
    with open(tmp_path / "rows.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    kinds = {"float32": lambda text: float(np.float32(text)), "int64": int, "string": str.encode}

    def value(row, feature):
        if feature.name == "label":
            return manifest.class_names.index(row["tip"]) if strings else int(row["tip"])
        return kinds[feature.dtype](row[feature.name] or feature.default)

    assert found == sorted(tuple(value(row, f) for f in manifest.features) for row in rows)

"""Each row of a table becomes an example, or is left out by the filter, or is told as wrong."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from components.convert.options import Options
from components.convert.origin import Origin
from components.convert.stages import Work

SCHEMA = """{name: said, origin: made up, columns: {age: {type: int}, said: {type: string%s}}, filter: {greater: [age, 0]},
 label: {%s}, deep: [{column: age, numeric: z_score}]}"""
YES = "{equal: [said, {text: 'yes'}]}"
LABELS = [
    "column: said, classes: ['no', 'yes']",
    f"condition: {YES}, classes: ['no', 'yes']",
    f"multi_label: {{'yes': {YES}, other: {{not: {YES}}}}}",
]
WRONG = [(None, "no"), (0.5, "no"), (7, "sure"), (7, None)]  # missing, no integer, no class, missing


def starts(records: bytes) -> list[int]:
    """The bytes at which the records of a TFRecord file begin."""
    found = [0]
    while found[-1] < len(records):
        found.append(found[-1] + 16 + int.from_bytes(records[found[-1] :][:8], "little"))
    return found[:-1]


@pytest.mark.parametrize("dataset", ["csv", "jsonl", "parquet", "tfrecord"])
@given(
    rows=st.lists(st.integers(-5, 99).map(lambda age: (age, "no")) | st.sampled_from(WRONG), min_size=1, max_size=30),
    shards=st.integers(1, 4),
    label=st.sampled_from(LABELS),
    default=st.sampled_from(["", ", default: 'no'"]),
)
def test_rows_in_are_rows_out_and_rows_filtered_and_rows_skipped(
    tmp_path_factory, write_records, dataset, rows, shards, label, default
):
    root = tmp_path_factory.mktemp("rows")
    path, schema = root / f"a.{dataset}", root / "schema.yaml"
    schema.write_text(SCHEMA % (default, label))
    wrong_rows = [row for row in WRONG if label.startswith("column") or row[1] != "sure"]
    records = [
        {name: value for name, value in zip(("age", "said"), row, strict=True) if value is not None} for row in rows
    ]
    if dataset == "csv":
        path.write_text("age,said\n" + "".join(f"{row.get('age', '')},{row.get('said', '')}\n" for row in records))
    elif dataset == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in records))
    elif dataset == "parquet":
        columns = {name: pa.array([row.get(name) for row in records]) for name in ("age", "said")}
        pq.write_table(
            pa.table({"age": columns["age"].cast(pa.float64()), "said": columns["said"].cast(pa.string())}),
            path,
            row_group_size=7,
        )
    else:
        write_records(path, [{**row, "said": row["said"].encode()} if "said" in row else row for row in records])
    wrong = sum(row in wrong_rows for row in rows)
    filtered = sum(row not in wrong_rows and row[0] <= 0 for row in rows)
    allowed = {"skip_bad": len(rows)} if dataset in ("csv", "jsonl") else {}
    options = Options(
        dataset=dataset, source=str(path), schema=str(schema), output="-", shards=min(shards, len(rows)), **allowed
    )

    def written():
        origin = Origin.of(options)
        work = Work(options=options, division=(division := origin.cut()), source=origin.reader.open(division.cut))
        numbers = range(len(division.cut.pieces))
        work = work.settled([work.look(i) for i in numbers]) if division.looks else work
        return [work.write(i, None) for i in numbers]

    if wrong and not allowed:
        with pytest.raises(UserError) as refused:
            written()
        told = re.search(rf"a\.{dataset}: (?:row|record at byte) (\d+): ", str(refused.value))
        places = [*range(1, len(rows) + 1)] if dataset == "parquet" else starts(path.read_bytes())
        assert told and (row := rows[places.index(int(told[1]))]) in wrong_rows, refused.value
        assert row != (7, None) or "said is missing" in str(refused.value)
        return
    pieces = written()
    assert sum(part["examples"] for piece in pieces for part in piece["parts"].values()) == len(rows) - wrong - filtered
    assert sum(piece["tallies"]["left_out"] for piece in pieces) == filtered
    assert sum(len(piece["tallies"]["skipped"]) for piece in pieces) == wrong

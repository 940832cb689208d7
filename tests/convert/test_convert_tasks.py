"""Tasks of a pipeline: in any order, twice or not at all, they leave the dataset that one conversion makes."""

import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.convert import tasks
from components.convert.convert import convert
from components.convert.options import Options

SCHEMA = """{name: sums, origin: made up, columns: {a: {type: float}, b: {type: string}, answer: {type: string}},
 label: {column: answer, classes: ['no', 'yes']},
 deep: [{column: a, numeric: z_score}, {column: b, vocabulary: 20, embedding: 3}]}"""


def content(directory: str | pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in pathlib.Path(directory).iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> pathlib.Path:
    place = tmp_path_factory.mktemp("tasks")
    rows = "".join(f"{i % 97},{'abcdefghijk'[i % 11]}{i % 13},{'no' if i % 97 < 50 else 'yes'}\n" for i in range(2000))
    (place / "rows.csv").write_text(f"a,b,answer\n{rows}")
    (place / "schema.yaml").write_text(SCHEMA)
    table = {"dataset": "csv", "source": str(place / "rows.csv"), "schema": str(place / "schema.yaml"), "shards": 7}
    convert(Options(**table, output=str(place / "csv")))
    convert(Options(dataset="digits", shards=7, output=str(place / "digits")))
    return place


@pytest.mark.cluster
@pytest.mark.parametrize("dataset", ["digits", "csv"])
@given(drawn=st.data())
@settings(max_examples=5, deadline=None)
def test_whatever_was_done_before_and_twice_the_dataset_is_that_of_one_task(place, tmp_path_factory, dataset, drawn):
    work, table = str(tmp_path_factory.mktemp("work") / "work"), dataset == "csv"
    flags = ["--shards=7", f"--dataset={dataset}", *([f"--source={place / 'rows.csv'}"] if table else [])]
    looks = tasks.split(flags, SCHEMA if table else "", "", work, tasks=3)
    assert len(looks) == (3 if table else 1)  # vocabularies are of all rows
    for share in [*drawn.draw(st.lists(st.sampled_from(looks))), *drawn.draw(st.permutations(looks))]:
        tasks.do("look", share, work)
    for share in drawn.draw(st.lists(st.sampled_from(tasks.to_write(work)))):
        tasks.do("write", share, work)
    with tasks.given(work) as (_, options):
        made, described = tasks.make(options, "", f"{work}/page")
        assert tasks.make(options, "", f"{work}/page") == (made, described)  # a task that is done again
    assert content(made) == content(place / dataset)

"""Predictions for files, by models that were made up and exported."""

import json

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from saved_models import export_untrained

from components.predict.__main__ import main
from tests.pictures import convert_pictures
from tests.rides import convert_quietly, source, typed_rows, write_csv

pytestmark = pytest.mark.cluster


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows), encoding="utf-8")


def write_parquet(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture(scope="module")
def rides(tmp_path_factory):
    """Rows, the folder with the dataset predictions of them, and a model for them."""
    folder, rows = tmp_path_factory.mktemp("rides"), typed_rows(300)
    manifest = convert_quietly(source(folder, rows))
    return rows, folder / "data", export_untrained(manifest, folder / "model")


def answers(path):
    with duckdb.connect() as connection:
        return connection.sql(f"FROM '{path}'").to_arrow_table().to_pylist()


def predict(model, source, output, *flags):
    """Runs the command; returns the predictions."""
    places = {"--model-dir": model, "--source": source, "--output": output}
    main([*(str(word) for place in places.items() for word in place), *flags])
    return answers(output)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("r.csv", write_csv),
        ("r.csv.gz", write_csv),
        ("r.jsonl", write_jsonl),
        ("r.parquet", write_parquet),
    ],
)
def test_predict_table_of_each_kind(rides, tmp_path, name, write):
    rows, data, model = rides
    write(tmp_path / name, rows)
    predictions, of_jsonl, of_csv = (
        predict(model, tmp_path / name, tmp_path / output, "--batch-size", "7")
        for output in ("p.parquet", "p.jsonl", "p.csv")
    )
    assert [row["id"] for row in predictions] == [row["id"] for row in rows]
    names = ["class_index", "class_name", "probabilities"]
    assert [*predictions[0]][-3:] == names and {*rows[0]} < predictions[0].keys()
    for name, others in (("class_index", of_csv), ("probabilities", of_jsonl)):
        assert [row[name] for row in others] == [row[name] for row in predictions]
    expected = set()
    for split in ("train", "validation", "test"):
        rows = predict(model, data, tmp_path / f"{split}.parquet", "--split", split)
        expected |= {tuple(row["probabilities"]) for row in rows}
    assert {tuple(row["probabilities"]) for row in predictions} == expected
    assert len(expected) > 250


def test_predict_keeps_all_and_lists_wrong_rows(rides, tmp_path, capsys):
    rows, _, model = rides
    names = ("class_name", "predicted_class_name")
    rows = [
        {**row, "stops": "many" if i % 50 == 3 else row["stops"], **dict.fromkeys(names, "own")}
        for i, row in enumerate(rows)
    ]
    write_csv(tmp_path / "r.csv", rows)
    predictions = predict(model, tmp_path / "r.csv", tmp_path / "p.parquet", "--batch-size", "64")
    assert "6 rows are wrong and left out" in capsys.readouterr().out
    right = [row["id"] for row in rows if row["stops"] != "many"]
    assert [row["id"] for row in predictions] == right
    first = predictions[0]
    assert {*rows[0]} < {*first} and first["Fare (USD)"] == str(rows[0]["Fare (USD)"])
    assert {first[name] for name in names} == {"own"}
    assert first["predicted_predicted_class_name"] != "own"
    lines = (tmp_path / "p.errors.jsonl").read_text(encoding="utf-8").splitlines()
    wrong = [json.loads(line) for line in lines]
    assert [row["id"] for row in wrong] == [f"#{i}" for i in range(3, 300, 50)]
    assert [row["row"] for row in wrong] == [*range(4, 301, 50)]
    assert wrong[0]["fault"] == "Stops: 'many' is no 64-bit whole number"


@pytest.mark.parametrize(
    ("header", "stops", "flags", "message"),
    [
        ("Fare", 1, [], "the model takes: 'Fare (USD)'; did you mean 'Fare'"),
        ("Fare (USD)", "x", [], "none of 2 rows can be answered; of the first: Stops: 'x' is no"),
        ("Fare (USD)", 1, ["--source", "nothing.csv"], "nothing.csv: no such file"),
        (
            "Fare (USD)",
            1,
            ["--output", "p.txt"],
            "'p.txt' is not a path of this machine that ends in .parquet",
        ),
        ("Fare (USD)", 1, ["--output", "r.csv"], "r.csv: is there already"),
    ],
)
def test_predict_refusal(rides, tmp_path, refused, monkeypatch, header, stops, flags, message):
    monkeypatch.chdir(tmp_path)
    row = {header: 1, "stops": stops, "began": "", "paid": "", "company": ""}
    write_csv(tmp_path / "r.csv", [row, row])
    places = ["--source", "r.csv", "--output", "p.csv"]
    assert message in refused(main, "--model-dir", rides[2], *places, *flags)
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


def test_predict_damaged_file(rides, tmp_path, refused):
    (tmp_path / "r.csv").write_text("Fare (USD),began,company,paid,stops\n1,2\n")
    flags = ["--source", tmp_path / "r.csv", "--output", tmp_path / "p.csv"]
    line = refused(main, "--model-dir", rides[2], *flags)
    assert f"{tmp_path}/r.csv: " in line and "CSV Error on Line: 2 " in line


def test_predict_images(tmp_path, capsys):
    manifest, paths = convert_pictures(tmp_path)
    model = export_untrained(manifest, tmp_path / "model", "cnn")
    paths[0].write_bytes(b"no image")
    predictions = predict(model, tmp_path / "source", tmp_path / "p.csv", "--batch-size", "16")
    assert "1 rows are wrong and left out" in capsys.readouterr().out
    assert len(predictions) == 39 and predictions[0]["file"].endswith("a/02.png")
    assert {row["class_name"] for row in predictions} <= {"a", "b"}
    wrong = json.loads((tmp_path / "p.errors.jsonl").read_text())
    assert wrong["file"].endswith("a/00.png") and wrong["row"] == 1
    assert wrong["fault"].startswith("Unknown image file format")


def test_predict_model_for_other_rows(rides, make_model, tmp_path, refused):
    write_csv(tmp_path / "r.csv", rides[0])
    flags = ["--source", tmp_path / "r.csv", "--output", tmp_path / "p.csv"]
    line = refused(main, "--model-dir", make_model(), *flags)
    assert "does not take csv; its signatures are " in line

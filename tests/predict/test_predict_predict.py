"""Predictions for files, by models that were made up and exported."""

import json
import re

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from saved_models import export_untrained

from components.convert.convert import convert
from components.convert.options import Options
from components.predict.__main__ import main
from tests.rides import convert_quietly, source, typed_rows, write_csv

pytestmark = pytest.mark.cluster


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows), encoding="utf-8")


def write_parquet(path, rows):
    table = pa.Table.from_pylist(rows)
    stops = table["stops"].cast(pa.float64())  # As pandas has whole numbers with gaps.
    began = table["began"].cast(pa.timestamp("us", "UTC"))
    for name, values in (("stops", stops), ("began", began)):
        table = table.set_column(table.schema.get_field_index(name), name, values)
    pq.write_table(table, path)


@pytest.fixture(scope="module")
def rides(tmp_path_factory):
    """Rows, the folder with the dataset predictions of them, and a model for them."""
    folder, rows = tmp_path_factory.mktemp("rides"), typed_rows(300)
    manifest = convert_quietly(source(folder, rows))
    return rows, folder / "data", export_untrained(manifest, folder / "model")


def answers(path) -> list[dict]:
    reader = {"parquet": "read_parquet", "csv": "read_csv", "jsonl": "read_json"}[path.suffix[1:]]
    with duckdb.connect() as connection:
        return connection.sql(f"FROM {reader}('{path}')").to_arrow_table().to_pylist()


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
    for output in ("p.parquet", "p.csv", "p.jsonl"):
        flags = [
            "--model-dir",
            model,
            "--source",
            str(tmp_path / name),
            "--output",
            str(tmp_path / output),
        ]
        main([*flags, "--keep", "id", "--batch-size", "7"])
    predictions = answers(tmp_path / "p.parquet")
    assert [row["id"] for row in predictions] == [row["id"] for row in rows]
    assert predictions == answers(tmp_path / "p.jsonl") and len(answers(tmp_path / "p.csv")) == len(
        rows
    )
    predicted = set()
    for split in ("train", "validation", "test"):
        output = tmp_path / f"{split}.parquet"
        main(
            ["--model-dir", model, "--source", str(data), "--split", split, "--output", str(output)]
        )
        predicted |= {tuple(row["probabilities"]) for row in answers(output)}
    assert {tuple(row["probabilities"]) for row in predictions} == predicted and len(
        predicted
    ) > 250


def test_predict_keeps_all_and_lists_wrong_rows(rides, tmp_path, capsys):
    rows, _, model = rides
    names = ("class_name", "predicted_class_name")
    rows = [
        {**row, "stops": "many" if i % 50 == 3 else row["stops"], **dict.fromkeys(names, "own")}
        for i, row in enumerate(rows)
    ]
    write_csv(tmp_path / "r.csv", rows)
    main(
        [
            "--model-dir",
            model,
            "--source",
            str(tmp_path / "r.csv"),
            "--output",
            str(tmp_path / "p.parquet"),
        ]
    )
    assert "6 of 300 rows are wrong and left out" in capsys.readouterr().out
    predictions = answers(tmp_path / "p.parquet")
    assert [row["id"] for row in predictions] == [
        row["id"] for row in rows if row["stops"] != "many"
    ]
    assert {*rows[0]} < {*predictions[0]} and predictions[0]["Fare (USD)"] == str(
        rows[0]["Fare (USD)"]
    )
    assert {predictions[0][name] for name in names} == {"own"}
    assert predictions[0]["predicted_predicted_class_name"] != "own"
    wrong = [
        json.loads(line)
        for line in (tmp_path / "p.errors.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [row["id"] for row in wrong] == [f"#{i}" for i in range(3, 300, 50)]
    assert wrong[0]["fault"] == "Stops: 'many' is no 64-bit whole number"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fare": "Fare"}, "no column 'Fare (USD)', which the model takes (it has id, Fare, "),
        ({"source": "nothing.csv"}, "nothing.csv: no such file"),
        (
            {"stops": "x"},
            "none of 300 rows can be answered; of the first: Stops: 'x' is no 64-bit whole number",
        ),
        ({"flags": ["--keep", "ids"]}, "unknown column 'ids'; did you mean 'id'?"),
        (
            {"flags": ["--name", "rides"]},
            "give either --name of a model in the --registry, or --model-dir",
        ),
        ({"output": "p.txt"}, "unknown ending of --output '.txt'"),
        ({"output": "r.csv"}, "r.csv: is there already"),
        (
            {"source": "model"},
            "no converted dataset, no PNG or JPEG files, and none that end in csv, tsv",
        ),
    ],
)
def test_predict_refusal(rides, tmp_path, refused, change, message):
    rows, _, model = rides
    renamed = {"Fare (USD)": change.get("fare", "Fare (USD)")}
    rows = [
        {renamed.get(k, k): change.get("stops", v) if k == "stops" else v for k, v in row.items()}
        for row in rows
    ]
    write_csv(tmp_path / "r.csv", rows)
    source = (
        model if change.get("source") == "model" else str(tmp_path / change.get("source", "r.csv"))
    )
    flags = [
        "--source",
        source,
        "--output",
        str(tmp_path / change.get("output", "p.csv")),
        *change.get("flags", ()),
    ]
    assert message in refused(main, "--model-dir", model, *flags)
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "r.csv",
            "Fare (USD),began,company,paid,stops\n1,2\n",
            "r.csv: .* CSV Error on Line: 2 .* Found: 2",
        ),
        (
            "r.csv",
            'id,stops\n1,2"3\n',
            "r.csv: line 2: a quote in a value that does not start with one",
        ),
        ("r.csv", "id,id\n1,2\n", "r.csv: two columns have one name in the header"),
        ("r.csv", "", "r.csv: empty; it needs a header"),
        ("r.jsonl", '{"id": 1}\n{oops\n', "r.jsonl: .*Malformed JSON .* in line"),
        ("r.parquet", "PAR1", "r.parquet: .* too small to be a Parquet file"),
    ],
)
def test_predict_damaged_file(rides, tmp_path, refused, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    flags = ["--source", str(tmp_path / name), "--output", str(tmp_path / "p.csv")]
    assert re.search(message, refused(main, "--model-dir", rides[2], *flags))


def test_predict_images(tmp_path, capsys):
    for i in range(40):
        path = tmp_path / "images" / "ab"[i % 2] / f"{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 8), (i, 5 * i, 255 - i)).save(path)
    with_data = Options(
        dataset="images", source=str(tmp_path / "images"), output=str(tmp_path / "data")
    )
    model = export_untrained(convert(with_data), tmp_path / "model", "cnn")
    (tmp_path / "images" / "a" / "00.png").write_bytes(b"no image")
    flags = [
        "--model-dir",
        model,
        "--source",
        str(tmp_path / "images"),
        "--output",
        str(tmp_path / "p.csv"),
    ]
    main([*flags, "--batch-size", "16"])
    assert "1 of 40 rows are wrong and left out" in capsys.readouterr().out
    predictions = answers(tmp_path / "p.csv")
    assert (
        len(predictions) == 39
        and predictions[0]["file"].endswith("a/02.png")
        and {row["class_name"] for row in predictions} <= {"a", "b"}
    )
    wrong = json.loads((tmp_path / "p.errors.jsonl").read_text())
    assert wrong["file"].endswith("a/00.png") and wrong["fault"].startswith(
        "Unknown image file format"
    )


def test_predict_model_for_other_rows(rides, scored, make_model, tmp_path, refused):
    write_csv(tmp_path / "r.csv", rides[0])
    flags = ["--model-dir", str(make_model()), "--output", str(tmp_path / "p.csv")]
    line = refused(main, *flags, "--source", str(tmp_path / "r.csv"))
    assert (
        "does not take rows of a table" in line
        and "its signatures are serving_default of image" in line
    )
    main([*flags, "--source", str(scored.path)])
    predictions = answers(tmp_path / "p.csv")
    assert sum(row["label"] == int(row["class_name"]) for row in predictions) == len(scored.labels)

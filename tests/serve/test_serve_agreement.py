"""The same rows are answered alike by evaluation, predictions for files and a server."""

import base64
import pathlib

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from saved_models import export_untrained

from components.convert.options import Options
from components.evaluate import score
from components.evaluate.eval_set import EvalSet
from components.predict.__main__ import main as predict
from tests.rides import SCHEMA, convert_quietly, source, typed_rows

pytestmark = pytest.mark.cluster
LABELS = {
    "classes": SCHEMA["label"],
    "multi_label": {"multi_label": {"tipped": "tip = 'yes'", "short": "length(tip) = 2"}},
    "regression": {"regression": {"letters": "length(tip)"}},
}


def table(folder: pathlib.Path, label: dict) -> tuple[Options, str, list]:
    """Returns a conversion, its source and each row as a client sends it."""
    rows = typed_rows(200)
    options = source(folder, rows, label=label)
    sent = [
        {
            "fare": row["Fare (USD)"],
            "Stops": row["stops"],
            "began": row["began"] and str(row["began"]),
            "paid": row["paid"],
            "company": row["company"],
        }
        for row in rows
    ]
    return options, options.source, sent


def pictures(folder: pathlib.Path) -> tuple[Options, str, list]:
    """Returns the same of images."""
    draw, sent = np.random.default_rng(0), []
    for i in range(60):
        path = folder / "pictures" / "ab"[i // 30] / f"{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (8, 9, 3), np.uint8)).save(path)
        sent.append({"b64": base64.b64encode(path.read_bytes()).decode()})
    flags = {"dataset": "images", "source": str(folder / "pictures")}
    return Options(**flags, output=str(folder / "data")), str(folder / "pictures"), sent


def in_order(answers: np.ndarray) -> np.ndarray:
    """Sorts answers, [N, outputs]."""
    return answers[np.lexsort(answers.T)]


@pytest.mark.parametrize(
    ("kind", "model"),
    [*((label, "wide_deep") for label in LABELS), ("images", "cnn")],
)
def test_answers_agree(kind, model, tmp_path, serving, capsys):
    options, path, sent = table(tmp_path, LABELS[kind]) if kind in LABELS else pictures(tmp_path)
    manifest = convert_quietly(options)
    directory = export_untrained(manifest, tmp_path / "model", model)
    records = [EvalSet.load(options.output, split) for split in manifest.splits]
    name = records[0].task.answers[0]
    evaluated = np.concatenate(
        [score.predict(score.load(directory, each), each).answers for each in records]
    )
    predict(["--model-dir", directory, "--source", path, "--output", str(tmp_path / "p.parquet")])
    predicted = np.stack(pq.read_table(tmp_path / "p.parquet")[name].to_pylist())
    with serving("m", "--model-dir", directory) as server:
        rows = server.ask(instances=sent)["predictions"]
    served = np.array([row[name] if isinstance(row, dict) else row for row in rows])
    assert len(np.unique(served, axis=0)) > len(sent) // 2
    np.testing.assert_allclose(served, predicted, atol=1e-6)
    np.testing.assert_allclose(in_order(served), in_order(evaluated), atol=1e-6)

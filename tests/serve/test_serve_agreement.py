"""The same rows are answered alike by evaluation, predictions for files and a server."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from saved_models import export_untrained

from components.evaluate import score
from components.evaluate.eval_set import EvalSet
from components.predict.__main__ import main as predict
from tests.pictures import convert_pictures, encoded
from tests.rides import SCHEMA, convert_quietly, source, typed_rows

pytestmark = pytest.mark.cluster
LABELS = {
    "classes": SCHEMA["label"],
    "multi_label": {"multi_label": {"tipped": "tip = 'yes'", "short": "length(tip) = 2"}},
    "regression": {"regression": {"letters": "length(tip)"}},
}


def table(folder, label):
    """Returns a conversion, its source and each row as a client sends it."""
    rows = typed_rows(200)
    options = source(folder, rows, label=label)
    names = {"Fare (USD)": "fare", "stops": "Stops"}
    sent = [{names.get(name, name): value for name, value in row.items()} for row in rows]
    for row in sent:
        del row["id"], row["tip"]
        row["began"] = row["began"] and str(row["began"])
    return convert_quietly(options), options.source, sent


def in_order(answers):
    """Sorts answers, [N, outputs]."""
    return answers[np.lexsort(answers.T)]


@pytest.mark.parametrize(
    ("kind", "model"),
    [*((label, "wide_deep") for label in LABELS), ("images", "cnn")],
)
def test_answers_agree(kind, model, tmp_path, serving, capsys):
    if kind in LABELS:
        manifest, path, sent = table(tmp_path, LABELS[kind])
    else:
        manifest, paths = convert_pictures(tmp_path, 60)
        path, sent = str(tmp_path / "source"), [*map(encoded, paths)]
    directory = export_untrained(manifest, tmp_path / "model", model)
    records = [EvalSet.load(str(tmp_path / "data"), split) for split in manifest.splits]
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
    # In a file, the only number of a row stands by itself.
    np.testing.assert_allclose(served, predicted.reshape(served.shape), atol=1e-6)
    np.testing.assert_allclose(in_order(served), in_order(evaluated), atol=1e-6)

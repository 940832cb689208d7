import json
import pathlib

import pytest

from components.register.__main__ import main
from components.register.model_card import model_card
from components.register.register import register


@pytest.fixture
def version(evaluated, tmp_path) -> pathlib.Path:
    """The directory of a registered version."""
    job, evaluation = evaluated("job", 0.9, auc=0.87654, least=0.5)
    model = str(job / "model")
    made = register(model_dir=model, evaluation=evaluation, registry=str(tmp_path / "r"), name="m", run="run-7")
    return tmp_path / "r" / "m" / made


def test_card_has_figures_and_reasons(version):
    card, facts = (version / "MODEL_CARD.md").read_text(), json.loads((version / "version.json").read_text())
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in card.splitlines() if line.startswith("|")]
    assert table == [
        ["", "accuracy", "loss", "auc"],
        ["---"] * 4,
        ["this model", "0.9000", "0.5000", "0.8765"],
        ["nothing", "-1.0000", "-1.0000", "-1.0000"],
    ]
    assert "# m, version 1\n" in card and "by run `run-7`" in card and f"code `{facts['code_version']}`" in card
    assert "On 100 records of the split `test`" in card and "The verdict was **promote**, by accuracy:" in card
    assert [line[2:] for line in card.splitlines() if line.startswith("- ")] == facts["decision"]["reasons"]
    assert "takes `image` uint8 [N, 8, 8, 1]" in card and "in this order: `0`, `1`." in card and "missing" not in card


def test_version_says_how_long_trained(version, tmp_path, capsys):
    assert "trained on `digits` for 30 steps, 6 epochs. Registered" in (version / "MODEL_CARD.md").read_text()
    main(["show", "--registry", str(tmp_path / "r"), "--name", "m", version.name])
    shown = json.loads(capsys.readouterr().out)
    assert (shown["steps"], shown["epochs"]) == (30, 6.0)


def test_card_of_regression_on_table(version):
    facts = json.loads((version / "version.json").read_text())
    other = {
        "task": "regression",
        "class_names": [],
        "targets": ["tip|s"],
        "features": {"fare": "float32[]"},
        "run": "",
    }
    card = model_card({**facts, **other, "baseline": {**facts["baseline"], "rule": "a|b"}})
    assert "`predictions` [N, targets], in this order: `tip|s`." in card and "`fare` float32 [N] " in card
    assert "sent as NaN" in card and "one of its classes" not in card and "| a\\|b | " in card and "by run" not in card
    assert "`c29` and 3 more." in model_card({**facts, "class_names": [f"c{i}" for i in range(33)]})

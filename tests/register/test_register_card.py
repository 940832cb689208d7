import re

import pytest
from saved_models import export_untrained

from common.manifest import Manifest
from components.register.__main__ import main
from components.register.directory import DirectoryRegistry
from tests.programs import run_python

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(("model", "dataset"), [("wide_deep", "data"), ("cnn", "digits")])
def test_card_has_code_that_runs(request, tmp_path, capsys, model, dataset):
    manifest = Manifest.load(request.getfixturevalue(dataset))
    registry = DirectoryRegistry(f"{tmp_path}/registry")
    metrics = {"accuracy": 0.9, "examples": 1200}
    facts = {"task": "classification", "metric": "accuracy", "metrics": metrics, "split": "test"}
    facts |= {
        "dataset": manifest.name,
        "features": {"image": "uint8[8, 8, 1]"},
        "class_names": [*manifest.class_names],
    }
    registry.register("m", export_untrained(manifest, tmp_path / "model", model), facts)
    main(["card", "--registry", str(registry), "--name", "m", "1"])
    text = capsys.readouterr().out
    assert "accuracy 0.9000 on its test split (1,200 records)" in text
    if model == "wide_deep":
        assert '| `company` | `company` | string |  | `""` stands for it |' in text
    (code,) = re.findall("```python\n(.*?)```", text, re.DOTALL)
    assert (
        eval(run_python("-c", code, stderr=None))["class_name"][0].decode() in manifest.class_names
    )

"""Bad input: one line, exit code 2, and nothing is written."""

import shutil

import pytest

from components.convert.convert import convert
from components.convert.options import Options
from components.evaluate.__main__ import main


@pytest.fixture
def line(refused, scored, tmp_path):
    """Evaluates a model, which fails; returns the line."""

    def run(model, *flags, data=scored.path):
        output = tmp_path / "output"
        error = refused(main, "--model-dir", model, "--data-dir", data, "--output", output, *flags)
        assert not output.exists()
        return error

    return run


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"size": 9},
            "takes {'image': 'uint8(None, 9, 9, 1)'}; dataset 'digits' has {'image': 'uint8(None, ",
        ),
        ({"class_names": (*"0123456789", "ten")}, "knows 11 classes; dataset 'digits' has 10"),
        (
            {"class_names": ("T-shirt", *"123456789"), "wrong": 346},
            "says 'T-shirt' where dataset 'digits' has '0'",
        ),
        ({"confidence": float("nan")}, "probabilities that are not finite: its training diverged"),
        (
            {"outputs": ("class_index",)},
            "signature serving_default does not give class_name and probabilities",
        ),
    ],
)
def test_model_for_other_data_refused(line, make_model, other, message):
    model = make_model(**other)
    error = line(model)
    assert error.startswith(f"error: {model}") and message in error


def test_empty_split_is_error(line, make_model, tmp_path):
    convert(Options(output=f"{tmp_path}/data", shards=1, validation_fraction=0.0))
    error = line(make_model(), "--split", "validation", data=tmp_path / "data")
    assert "has no examples in split 'validation' (splits with examples: test, train)" in error


def test_unusable_files_are_errors(line, make_model, scored, tmp_path):
    assert "--registry needs the --name" in line(make_model(), "--registry", tmp_path)
    assert "no manifest.json" in line(make_model(), data=tmp_path)
    assert "no SavedModel here" in line(tmp_path / "nowhere")
    model = shutil.copytree(make_model(), tmp_path / "model")
    (model / "saved_model.pb").write_bytes(b"not a model")
    assert f"{model}: the model cannot be read (" in line(model)
    data = shutil.copytree(scored.path, tmp_path / "data")
    shard = next(data.glob("test-*.tfrecord"))
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    shard.write_bytes(content)
    assert f"{shard} is not the file that the manifest lists" in line(make_model(), data=data)

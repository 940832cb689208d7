import inspect
import json
import typing

import pytest
from kfp import dsl

from components.evaluate import component
from components.evaluate.__main__ import main
from components.register.directory import DirectoryRegistry


@pytest.fixture
def evaluate(tmp_path):
    """Runs the command; returns the content of `evaluation.json`."""

    def run(model, data, *flags, output=tmp_path / "evaluation"):
        arguments = ["--model-dir", model, "--data-dir", data, "--output", output, *flags]
        assert main([str(argument) for argument in arguments]) == 0
        return json.loads((output / "evaluation.json").read_text())

    return run


@pytest.fixture
def evaluate_step(tmp_path):
    """Runs the pipeline's step; returns its artifacts by name, and its result as `output`."""

    def run(job, data, *flags):
        artifacts = {
            name: kind(name=name, uri=str(tmp_path / name))
            for name, kind in typing.get_type_hints(component.evaluate).items()
            if inspect.isclass(kind) and issubclass(kind, dsl.Artifact)
        }
        places = {"job_dir": f"{job}/", "registry": f"{tmp_path}/registry", "name": "m"}
        places["dataset"] = str(data)
        output = component.evaluate(**places, evaluate_args=[*flags], **artifacts)
        return {**artifacts, "output": output}

    return run


@pytest.fixture
def champion(tmp_path):
    """Makes a model the champion of a new registry; returns the flags that compare with it."""

    def make(model):
        registry = DirectoryRegistry(f"{tmp_path}/registry")
        facts = {"metrics": {}, "fingerprint": "other", "split": "test"}
        version = registry.register("m", str(model), facts)
        assert registry.promote("m", version, instead_of=None)
        return ["--registry", f"{tmp_path}/registry", "--name", "m"]

    return make

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pipelines.local.cache import STORE
from pipelines.local.record import RunRecord

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="session")
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script of the project to its end."""

    def run(
        script: str, *flags: object, preexec_fn: Callable[[], object] | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, script, *map(str, flags)]
        more = {"env": {**os.environ, **env}, "preexec_fn": preexec_fn}
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300, **more)

    return run


@pytest.fixture(scope="session")
def weights() -> Callable[[pathlib.Path], list[bytes]]:
    """Those of a SavedModel, in its own order."""
    import tensorflow as tf  # 3 s

    def read(model: pathlib.Path) -> list[bytes]:
        reader = tf.train.load_checkpoint(str(model / "variables" / "variables"))
        names = sorted(
            name for name in reader.get_variable_to_shape_map() if name.startswith("variables/")
        )
        assert len(names) == 10
        return [reader.get_tensor(name).tobytes() for name in names]

    return read


@pytest.fixture
def make(tmp_path: pathlib.Path) -> Callable[..., pathlib.Path]:
    """Makes the directory of a run that asked for a dataset; `status` is that of its summary, if it has one."""

    def make(
        name: str,
        status: str | None = "succeeded",
        *,
        dataset: str = "d1",
        accuracy: float | None = 0.5,
        **job: Any,
    ) -> Any:
        run = tmp_path / "runs" / name
        (run / "job").mkdir(parents=True)
        arguments = {
            "run_dir": str(run),
            "job_dir": str(run / "job"),
            "dataset_dir": str(run.parent / STORE / dataset),
        }
        arguments |= {
            "name": "digits",
            "registry": str(tmp_path / "r"),
            "schema": "",
            "source_digest": "0",
        }
        arguments |= {"trainer_args": ["--seed=1"], "convert_args": [], "evaluate_args": []}
        arguments["cluster"] = '{"ps": {"n": 1}}'
        facts = {
            "runner": "subprocess",
            "image": "python",
            "dataset": "digits",
            "cluster": "clusters/local.yaml",
        }
        RunRecord(id=name, arguments=arguments, **facts).save()
        if status:
            summary = {
                "status": status,
                "reason": None,
                "seconds": 2.5,
                "metrics": {"accuracy": accuracy},
            }
            summary["steps"] = [{"name": "train", "status": "succeeded", "seconds": 1.0}]
            summary["model"] = {"name": "digits", "version": "1", "verdict": "promote"}
            summary["paths"] = {"job": str(run / "job")}
            (run / "summary.json").write_text(json.dumps(summary))
            (run / "evaluation.json").write_text('{"metric": "accuracy"}')
            (run / "report.html").write_text("page")
        if job:
            (run / "job" / "job.json").write_text(json.dumps(job))
        return run

    return make

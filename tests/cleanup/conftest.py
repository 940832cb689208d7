import json
import pathlib
from collections.abc import Callable

import pytest
from kfp import dsl

from components.cleanup.component import cleanup
from pipelines.local.record import RunRecord


@pytest.fixture
def make_run(tmp_path: pathlib.Path) -> Callable[..., pathlib.Path]:
    """Makes a run's directory as the pipeline leaves it."""

    def make(name: str = "r1", *, done: bool = True) -> pathlib.Path:
        run = tmp_path / "runs" / name
        for file in (
            "tmp/scratch",
            "job/DONE.json.1.tmp",
            "job/model.partial/saved_model.pb",
            "job/model.partial/half.tmp",
            "job/checkpoints/ckpt-10.index",
            "job/checkpoints/half.tmp",
            "job/model/saved_model.pb",
            "job/journal-chief-0-0.jsonl",
            f"artifacts/{name}/convert/output/manifest.json",
            f"artifacts/{name}/evaluate/report",
            "logs/pipeline.log",
            "report.html",
        ):
            path = run / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("12345")
        facts = {
            "runner": "subprocess",
            "image": "python",
            "dataset": "digits",
            "cluster": "c.yaml",
        }
        RunRecord(id=name, arguments={"run_dir": str(run)}, **facts).save()
        (run / "summary.json").write_text(json.dumps({"paths": {"dataset": None}}))
        if done:
            (run / "job" / "DONE.json").write_text("{}")
        return run

    return make


@pytest.fixture(scope="session")
def files() -> Callable[[pathlib.Path], set[str]]:
    """Names of all files below a directory; a link is one, whatever it points at."""
    return lambda directory: {
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


@pytest.fixture(scope="session")
def exit_handler() -> Callable[..., None]:
    """Runs the pipeline's exit handler after a run that ended in a state."""

    def run(
        state: str, run_id: str, *, run_dir: str = "", project: str = "", location: str = ""
    ) -> None:
        names = {
            "pipeline_job_resource_name": "",
            "pipeline_task_name": "",
            "error_code": None,
            "error_message": None,
        }
        status = dsl.PipelineTaskFinalStatus(state=state, **names)
        cleanup(run_id=run_id, run_dir=run_dir, project=project, location=location, status=status)

    return run

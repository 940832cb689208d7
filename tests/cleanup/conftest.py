import json

import pytest
from kfp import dsl

from components.cleanup.component import cleanup
from pipelines.local.record import RunRecord

FILES = """tmp/scratch
job/DONE.json.1.tmp
job/model.partial/saved_model.pb
job/model.partial/half.tmp
job/checkpoints/ckpt-10.index
job/checkpoints/half.tmp
job/model/saved_model.pb
job/journal-chief-0-0.jsonl
artifacts/{name}/convert/output/manifest.json
artifacts/{name}/evaluate/report
logs/pipeline.log
report.html"""


@pytest.fixture
def vertex(vertex):
    """The same with another region as the default of Google's clients."""
    from google.cloud import aiplatform  # 2 s

    aiplatform.init(location="europe-west4")
    return vertex


@pytest.fixture
def make_run(tmp_path):
    """Makes a run's directory as the pipeline leaves it."""

    def make(name="r1", *, done=True):
        run = tmp_path / "runs" / name
        for file in FILES.format(name=name).split():
            (run / file).parent.mkdir(parents=True, exist_ok=True)
            (run / file).write_text("12345")
        facts = dict.fromkeys(("runner", "image", "dataset", "cluster"), "x")
        RunRecord(id=name, arguments={"run_dir": str(run)}, **facts).save()
        (run / "summary.json").write_text(json.dumps({"paths": {"dataset": None}}))
        if done:
            (run / "job" / "DONE.json").write_text("{}")
        return run

    return make


def files(directory):
    """Names of all files below a directory; a link is one, whatever it points at."""
    paths = [path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir()]
    return {str(path.relative_to(directory)) for path in paths}


def exit_handler(state, run_id, run_dir="", vertex=None, runs=""):
    """Runs the pipeline's exit handler after a run that ended in a state.

    The run was one of this machine in `run_dir`, one of Vertex AI, or of another server in `runs`.
    """
    names = ("pipeline_job_resource_name", "pipeline_task_name", "error_code", "error_message")
    status = dsl.PipelineTaskFinalStatus(state=state, **dict.fromkeys(names))
    project, location = (vertex.project, vertex.location) if vertex else ("", "")
    training = {"train_args": [], "job_dir": runs or f"{run_dir}/job"}
    training["run_folder"] = run_id if runs else ""
    place = {"project": project, "location": location}
    cleanup(run_id=run_id, run_dir=run_dir, **training, **place, status=status)

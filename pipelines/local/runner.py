"""Runs the pipeline of a run directory with kfp.local: `python -m pipelines.local.runner runs/<id>`.

It is a process of its own because kfp.local replaces `print`, keeps no logs and tells its progress only in them;
`pipelines.run` starts it, keeps its output and reads the progress from it.
"""

import logging
import os
import pathlib
import signal
import sys
import warnings

from kfp import local

from pipelines.local.record import RunRecord
from pipelines.local.steps import NAMES
from pipelines.training import build, step_names
from trainer.base.lifeline import owner_pid, watch


def main(run_dir: str) -> int:
    """Runs the pipeline as `run.json` says. Returns the exit code."""
    if owner := owner_pid(os.environ):
        # The steps are in this process's group; the replicas of `train` die with their launcher.
        watch(owner, lambda: os.killpg(0, signal.SIGKILL))
    # The group is told to stop so that the step that trains saves; this process lives to tell that it has.
    signal.signal(signal.SIGTERM, lambda *_: None)
    warnings.simplefilter("ignore")  # of kfp about its own future, once for every task
    # kfp.local has a log of its own inside a task; that a task came from the cache it tells outside, to this one.
    logging.basicConfig(
        stream=sys.stdout,
        level=logging.INFO,
        format="%(asctime)s.%(msecs)03d - %(levelname)s - %(message)s",
        datefmt="%H:%M:%S",
    )
    record = RunRecord.load(run_dir)
    directory = pathlib.Path(run_dir).resolve()
    local.init(
        runner=_runner(record, directory),
        pipeline_root=str(directory / "artifacts"),
        workspace_root=str(directory / "tmp" / "workspace"),
        enable_caching=True,
        cache_root=str(directory / "artifacts" / ".done"),  # what a resume does not do again
    )
    pipeline = build("local", record.image)
    print(NAMES + " ".join(step_names(pipeline)), flush=True)
    try:
        pipeline(**record.arguments)
    except RuntimeError as error:  # all that kfp says of a failure; the step's own words are in the log
        print(error)
        return 1
    return 0


def _runner(record: RunRecord, directory: pathlib.Path) -> local.SubprocessRunner | local.DockerRunner:
    if record.runner == "subprocess":
        return local.SubprocessRunner(use_venv=False)
    from docker.types import Mount  # only this runner needs the client

    # Paths inside are those outside, so every argument means the same.
    written = (str(directory.parent), record.arguments["registry"])
    mounts = [Mount(path, path, type="bind", read_only=path not in written) for path in (*written, *record.sources)]
    return local.DockerRunner(mounts=mounts, labels={record.label: record.id})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

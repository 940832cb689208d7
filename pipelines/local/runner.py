"""Runs the pipeline of a run directory with kfp.local: `python -m pipelines.local.runner runs/<id>`.

It is a process of its own because kfp.local replaces `print`, keeps no logs and tells its progress
only in them; `pipelines.run` starts it, keeps its output and reads the progress from it.
"""

import logging
import os
import signal
import subprocess
import sys
import warnings

from kfp import local

from common.cli import keep_exit_codes_of_children
from common.container_engine import check_engine, security_options
from common.lifeline import owner_pid, watch
from pipelines.local.record import RunRecord
from pipelines.training import build


def main(run_dir: str) -> int:
    """Runs the pipeline as `run.json` says. Returns the exit code."""
    record = RunRecord.load(run_dir)
    if owner := owner_pid(os.environ):
        watch(owner, lambda: _end(record))
    # The group is told to stop so that the step that trains saves; this process lives to tell that
    # it has. SIGHUP comes too where a login session ends.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    keep_exit_codes_of_children()
    warnings.simplefilter("ignore")  # of kfp about its own future, once for every task
    # kfp.local has a log of its own inside a task; that a task came from the cache it tells
    # outside, to this one.
    logging.basicConfig(
        stream=sys.stdout,
        level=logging.INFO,
        format="%(asctime)s.%(msecs)03d - %(levelname)s - %(message)s",
        datefmt="%H:%M:%S",
    )
    local.init(
        runner=_runner(record),
        pipeline_root=str(record.dir / "artifacts"),
        workspace_root=str(record.dir / "tmp" / "workspace"),
        enable_caching=True,
        cache_root=str(record.dir / "artifacts" / ".done"),  # what a resume does not do again
    )
    try:
        build("local", record.image)(**record.arguments)
    except (
        RuntimeError
    ) as error:  # all that kfp says of a failure; the step's own words are in the log
        print(error)
        return 1
    return 0


def _end(record: RunRecord) -> None:
    """Kills the steps: they are in this process's group, or in containers; the replicas of `train` die with their launcher."""
    if record.runner == "docker":
        # Not from here: while this process lives, it takes a container that is gone for a failure,
        # and goes on. And later: the engine may still be making what this process has asked it for.
        remove = (
            "import time; time.sleep(3); from common import container_engine as e; "
            f"e.remove_containers({record.label!r})"
        )
        subprocess.Popen([sys.executable, "-c", remove], start_new_session=True)
    os.killpg(0, signal.SIGKILL)


def _runner(record: RunRecord) -> local.SubprocessRunner | local.DockerRunner:
    if record.runner == "subprocess":
        return local.SubprocessRunner(use_venv=False)
    from docker.types import Mount

    # Paths inside are those outside, so every argument means the same.
    written = (str(record.dir.parent), record.arguments["registry"])
    mounts = [
        Mount(path, path, type="bind", read_only=path not in written)
        for path in (*written, *filter(os.path.isabs, record.sources))
    ]
    temporary = str(record.dir / "tmp")  # on the disk, unlike /tmp
    user = os.environ.get("USER", "")  # who has registered a model, for the registry's history
    return local.DockerRunner(
        mounts=mounts,
        labels=dict([record.label.split("=")]),
        environment={"HOME": temporary, "TMPDIR": temporary, "USER": user},
        read_only=True,
        tmpfs={"/tmp": ""},
        **security_options(rootless=check_engine("--runner subprocess")),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

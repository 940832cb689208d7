"""Runs the pipeline of a run with kfp.local: `python -m pipelines.local.runner runs/<id>`.

It is a process of its own because kfp.local replaces `print`, writes no logs, and reports progress
only in its output. `pipelines.run` starts this process, logs its output and reads the progress in
it.
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
    """Runs the pipeline as `run.json` describes it. Returns 0, or 1 if a step has failed.

    Raises:
      ValueError: If `run.json` is missing or damaged.
      UserError: If steps run in containers, and the container engine does not answer.
    """
    record = RunRecord.load(run_dir)
    if owner := owner_pid(os.environ):
        watch(owner, lambda: _end(record))
    # A signal goes to the whole group of processes, for the training to save. This process ignores
    # it, to report how the training ended. The end of a login session sends SIGHUP as well.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    keep_exit_codes_of_children()
    warnings.simplefilter("ignore")  # kfp warns of its own future versions, once for every task.
    # kfp.local sets up logging while a task runs. It reports hits of its cache outside of that
    # time, and they would be lost without this.
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
        cache_root=str(record.dir / "artifacts" / ".done"),  # Steps that a resume skips.
    )
    try:
        build("local", record.image)(**record.arguments)
    except RuntimeError as error:  # How kfp reports a failed step, whose own error is in the log.
        print(error)
        return 1
    return 0


def _end(record: RunRecord) -> None:
    """Kills all steps and this process, when the process that started it has ended.

    Steps are in this process's group, or in containers. The replicas of `train` end with their
    launcher.
    """
    if record.runner == "docker":
        # Another process removes the containers, because this one would take the end of a container
        # for a failure and go on. It waits, since the engine may still be starting a container that
        # this process has asked for.
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

    # Paths are the same inside and outside of containers, so arguments mean the same.
    written = (str(record.dir.parent), record.arguments["registry"])
    mounts = [
        Mount(path, path, type="bind", read_only=path not in written)
        for path in (*written, *filter(os.path.isabs, record.sources))
    ]
    temporary = str(record.dir / "tmp")  # On the disk; /tmp is in memory.
    user = os.environ.get("USER", "")  # The registry's history names who has registered a model.
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

"""Runs the whole pipeline on this machine: `python pipelines/run.py --help`.

Every run has a directory `runs/<id>` with `summary.json`, `report.html`, `evaluation.json`, `logs/`
and `job/`.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

try:
    from common import quiet
except ModuleNotFoundError:
    sys.exit(
        "error: this Python lacks the packages; run 'make setup' once, then .venv/bin/python "
        "pipelines/run.py"
    )
from common.cli import Flags, Parser, as_list, flag, run_cli
from common.container_engine import DEFAULT_IMAGE, check_engine, remove_containers
from common.errors import UserError, about, writable
from common.flags import job_directory, local
from common.lifeline import OWNER_PID, follow_owner
from common.storage.files import copy_tree
from common.storage.storage import is_remote
from components.convert.step import locate
from components.evaluate.gate import REJECT
from components.predict.options import Options as PredictOptions
from components.train.cluster.lookup import load_cluster
from components.train.supervision.signals import STOPPING, StopRequest
from pipelines.arguments import DEFAULT_CLUSTER, EXIT_REJECTED, FLAGS, SHARED, pipeline_arguments
from pipelines.config import Config, Keys
from pipelines.local import summary
from pipelines.local.progress import FAILED, RUNNING, Progress
from pipelines.local.record import RunRecord, begin
from pipelines.local.summary import shown
from trainer.job import done
from trainer.options import parse

DATASETS = ".datasets"  # Folder among the directories of the runs.


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalOptions(Flags):
    """Keys that only a run on this machine has."""

    runner: str = flag(("subprocess", "docker"), "what steps run in", default="subprocess")
    registry: str = flag(
        local, "directory of the model registry", default="registry", metavar="DIR"
    )
    # Directories in which TensorFlow would not find its files are refused here, before a dataset is
    # converted in vain.
    runs_dir: str = flag(
        lambda text: job_directory(os.path.abspath(local(text))),
        "where the runs are",
        default="runs",
        metavar="DIR",
    )


KEYS = Keys(
    options={**SHARED, LocalOptions: ()},
    flags=(*FLAGS, "train_epochs", "seed", "threshold", "runner", "registry", "runs_dir"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit code.

    It is 0 after a success, which may end with a rejected model; with --fail-on-reject that is 3.
    It is 2 if a step failed for a reason that the user can repair, 1 if it failed for another
    reason, and 128 + n after signal n.

    Args:
      argv: Arguments without the program's name; those of this process if None.

    Raises:
      UserError: If a key or the source cannot be used, or if a file cannot be written.
      ConnectionError: If the source is in a bucket that does not answer.
    """
    follow_owner()
    config = KEYS.read(_parser().parse_args(argv))
    return execute(_prepare(config), config.fail_on_reject)


def _parser() -> Parser:
    p = Parser(
        prog="pipelines/run.py",
        description="Converts a dataset, trains on a cluster of processes of this machine, "
        "evaluates, registers the model if it earns it, and cleans up.",
    )
    KEYS.add_flags(p)
    return p


def _prepare(config: Config) -> RunRecord:
    """Checks all keys, then makes the directory of the run, and returns its locked record.

    Also makes the directory of the registry, and copies a finished training that `job_dir` names
    into that of the run.

    Raises:
      UserError: If a key or the source cannot be used, or if a directory cannot be written.
      ConnectionError: If the source is in a bucket that does not answer.
    """
    if config.runner == "docker":
        check_engine("--runner subprocess")
    if config.job_dir and not done.load(config.job_dir):
        raise UserError(f"job_dir: {config.job_dir} is not the directory of a finished training")
    facts = describe(config)
    with writable(f"--registry {config.registry}"):
        pathlib.Path(config.registry).mkdir(parents=True, exist_ok=True)
    record = begin(
        pathlib.Path(config.runs_dir).resolve(),
        runner=config.runner,
        # Without containers, steps run in this Python. kfp warns if the image is not called so.
        image=config.image or (DEFAULT_IMAGE if config.runner == "docker" else "python"),
        **facts,
    )
    if config.job_dir:
        with writable(record.dir):
            copy_tree(config.job_dir, record.dir / "job")
    return record


def describe(config: Config, *, reads: bool = True) -> dict[str, Any]:
    """Returns what a run with these keys would do, and starts nothing.

    Args:
      config: Values of the keys.
      reads: Whether to read the source, whose content decides `dataset_dir`; that is False
        otherwise.

    Returns:
      `arguments` of the pipeline without those that `record.begin` adds; `dataset`, `cluster` and
      `sources` as in a `RunRecord`.

    Raises:
      UserError: If a key, the source, or the module of a model of the user's own cannot be used.
      ConnectionError: If the source is in a bucket that does not answer.
    """
    cluster_file = config.cluster or DEFAULT_CLUSTER
    cluster = load_cluster(cluster_file, as_list(config.trainer_flags))
    sources = [_absolute(path) for path in as_list(config.source)]
    predict = [_absolute(path) for path in as_list(config.predict)]
    if predict:
        with about("predict"):  # A missing file has to show before the training.
            PredictOptions(model_dir="-", source=tuple(predict), output="-.csv").files()
    arguments = pipeline_arguments(config, cluster, sources)
    trainer = parse(["--data-dir=-", "--job-dir=-", *arguments["trainer_args"]])
    if ":" in trainer.model and config.runner == "subprocess":
        with quiet.without_advice():
            quiet.import_keras()
            _ = trainer.own  # A mistake in the user's module should show before the conversion.
    datasets = f"{os.path.realpath(config.runs_dir)}/{DATASETS}"
    return {
        "arguments": {
            **arguments,
            "dataset_dir": reads
            and locate(datasets, arguments["convert_args"], arguments["schema"]),
            "registry": os.path.realpath(config.registry),
            "predict_source": predict,
        },
        "dataset": config.dataset,
        "cluster": cluster_file,
        "sources": [*sources, *predict],
    }


def _absolute(path: str) -> str:
    return path if is_remote(path) else os.path.realpath(path)


def execute(record: RunRecord, fail_on_reject: bool = False) -> int:
    """Runs or resumes a run, and writes its `summary.json`, `report.html` and `evaluation.json`.

    It must be called from the main thread, and leaves its handlers of signals in place.

    Args:
      record: Record of the run, which this process has locked.
      fail_on_reject: Whether a rejected model is a failure.

    Returns:
      The exit code: 0 after a success; 3 if the model is rejected, with `fail_on_reject`; 2 if a
      step failed for a reason that the user can repair; 1 if it failed for another reason; 128 + n
      after signal n.

    Raises:
      UserError: If the summary or the page cannot be written.
    """
    started = time.monotonic()
    for part in ("logs", "tmp"):
        (record.dir / part).mkdir(exist_ok=True)
    print(
        f"run {record.id}: {record.dataset} on {record.cluster}; logs in "
        f"{shown(record.dir / 'logs')}"
    )
    progress = Progress(record.dir / "logs")
    code = _drive(record, progress)
    # Codes other than 0 and 1 are those of signals.
    status = {0: "succeeded", 1: "failed"}.get(code, "interrupted")
    with writable(record.dir):
        result = summary.write(record, progress, status, time.monotonic() - started)
    text = summary.TEMPLATES.get_template("ended.txt").render(result, python=sys.executable)
    print(text.rstrip(), file=sys.stderr if code else sys.stdout)
    if fail_on_reject and status == "succeeded" and result["model"]["verdict"] == REJECT:
        return EXIT_REJECTED
    return 2 if result["reason"] else code


def _drive(record: RunRecord, progress: Progress) -> int:
    """Runs the pipeline in a child process, and shows its progress.

    Returns:
      0 after a success; 1 after a failure, which includes that training has left no `DONE.json`;
      128 + n if signal n stopped it.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "pipelines.local.runner", str(record.dir)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # In a session of its own, the child does not get Ctrl-C from the terminal. Only this
        # process does, which then stops the child in an orderly way.
        start_new_session=True,
        env={
            **os.environ,
            OWNER_PID: str(os.getpid()),
            "TMPDIR": str(record.dir / "tmp"),
            "PYTHONUNBUFFERED": "1",
        },
    )
    request = StopRequest()

    def stop(number: int, _frame: object) -> None:
        """Handles a signal: lets training without containers save, and kills all else.

        A step that is killed starts anew in a resume. A repeated signal kills the training too.
        """
        is_first = not request.number
        is_repeated = request.is_repeated_by(number)
        if number == signal.SIGHUP:  # The terminal is gone, and writing to it would fail.
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        if is_first or is_repeated:
            step = progress.first(RUNNING)
            saves = (
                is_first
                and record.runner == "subprocess"
                and step is not None
                and step.name == "train"
            )
            _signal_group(child, signal.SIGTERM if saves else signal.SIGKILL)
            progress.print(
                "interrupted; the training saves and stops (again: at once)"
                if saves
                else "interrupted"
            )

    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # As under nohup.
            signal.signal(number, stop)
    try:
        with progress:
            for step in progress.follow(child.stdout or ()):
                # After a signal no further step may run: the training has saved, or the step has
                # ended by itself.
                if request.number and step.status != RUNNING:
                    _signal_group(child, signal.SIGKILL)
        if child.wait() and request.number:
            return 128 + request.number
        # kfp's DockerRunner takes a container that has vanished for a success.
        has_trained = (record.dir / "job" / "DONE.json").exists()
        return int(bool(child.returncode or progress.first(FAILED) or not has_trained))
    finally:
        _signal_group(child, signal.SIGKILL)
        child.wait()
        if record.runner == "docker":
            remove_containers(record.label)


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The group has the child and the steps that it has started. It may be gone already.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


if __name__ == "__main__":
    run_cli(main)

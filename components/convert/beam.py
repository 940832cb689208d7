"""Runs independent tasks on Apache Beam: on this machine, or on those of Flink or Dataflow.

    flags = ["--runner", "DataflowRunner", ...]
    work = "gs://bucket/data/.converting"
    for i, result in run(write, tasks, arguments=flags, staged=folder, work=work):
        results[i] = result

Beam only decides which machine calls the function for which task. It may call the function twice
for a task, even at the same time. Results are therefore files, and the function has to write the
same bytes each time.
"""

import functools
import logging
import operator
import os
import pickle
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from common.errors import UserError, first_line
from common.guard import MARK, Guard
from common.locks import locked
from common.progress import track
from common.storage.files import copy_tree, list_folder, read_bytes, stat_file, write_bytes
from common.storage.storage import is_remote, map_in_threads
from components.convert.engine import ProcessLostError, attempt

_POLL_S, _END_S = 2.0, 5.0


def run(
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    *,
    arguments: Sequence[str],
    staged: str,
    work: str,
) -> Iterator[tuple[int, Any]]:
    """Runs a function for each task, and yields the results once all are done.

    Args:
      function: Takes a task. It is pickled.
      tasks: Tasks, which are pickled too.
      arguments: Flags of Beam and its runner.
      staged: Folder of this machine that the function reads. With `work` in a bucket, other
        machines get a copy.
      work: Folder that all machines can reach. Its new folder `results-*` gets the results, and
        `source` the copy of `staged`; both stay.

    Yields:
      The position of a task in `tasks`, and what the function returned for it; in any order.

    Raises:
      UserError: If Beam is not installed, or refuses the flags.
      ProcessLostError: If the job failed.
      Exception: What the function raised; if it did so for several tasks, that of the first one.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise UserError(
            "--engine beam needs an environment with Apache Beam; see requirements-beam.lock"
        ) from None
    # Beam logs a lot that nobody needs; but Dataflow's runner says where its job can be watched.
    logging.basicConfig(format="%(message)s")
    logging.getLogger("apache_beam").setLevel(logging.ERROR)
    logging.getLogger("apache_beam.runners.dataflow").setLevel(logging.INFO)
    results = f"{work}/results-{uuid.uuid4().hex}"
    call = functools.partial(_call, function, staged, f"{work}/source", results)
    try:
        pipeline = beam.Pipeline(options=PipelineOptions([*arguments]))
    except ValueError as error:
        raise UserError(f"Apache Beam: {first_line(error)}") from None
    _ = pipeline | beam.Create([*enumerate(tasks)]) | beam.Reshuffle() | beam.Map(call)
    if is_remote(work):
        copy_tree(staged, f"{work}/source")
    jobs, faults = [], []

    def execute() -> None:
        jobs.append(pipeline.run())  # Some runners return when the job is done, others at once.
        jobs[0].wait_until_finish()

    guard, thread = Guard(), threading.Thread(target=execute, daemon=True)
    # Workers on this machine would outlive this process; the guard ends all that have its mark.
    os.environ[MARK] = guard.mark("beam")
    # Beam leaves temporary folders behind; the guard deletes this one with all that is in it.
    tempfile.tempdir = guard.scratch
    # When a worker on this machine is killed, Beam's own threads end with an exception, and Beam
    # waits for the worker forever.
    threading.excepthook = lambda ended: faults.append(first_line(ended.exc_value))
    try:
        thread.start()
        with track("on Apache Beam", len(tasks), "pieces") as advance:
            shown = 0
            while thread.is_alive() and not faults:
                thread.join(_POLL_S)
                done = len(list_folder(results)[1])
                advance(done - shown)
                shown = done
        thread.join(_END_S)
    finally:
        if thread.is_alive() and jobs:
            jobs[0].cancel()
        tempfile.tempdir = None
        guard.close()
    contents = map_in_threads(lambda file: read_bytes(file.path), list_folder(results)[1])
    outcomes = [*map(pickle.loads, contents)]
    if errors := [outcome for outcome in outcomes if outcome[2]]:
        raise min(errors, key=operator.itemgetter(0))[2]
    if len(outcomes) < len(tasks):
        fault = faults[0] if faults else "it does not say why"
        raise ProcessLostError(
            f"the job of Apache Beam failed ({fault}); convert again: what is done is not done "
            "again"
        )
    yield from (outcome[:2] for outcome in outcomes)


def _call(
    function: Callable[[Any], Any], staged: str, copy: str, results: str, numbered: tuple[int, Any]
) -> None:
    """Runs a task on a worker of Beam, and writes its result or error to a file.

    Nothing is run or written once another task has failed.

    Args:
      function: Takes the task.
      staged: Folder that the function reads.
      copy: Copy of `staged`, from which a machine without that folder gets it.
      results: Folder for the file, whose name is the task's position. The file has the pickled
        position, result (or None) and error (or None).
      numbered: Position of the task, and the task.
    """
    i, task = numbered
    if not os.path.isdir(staged):
        with locked(f"{staged}.lock"):
            if not os.path.isdir(staged):
                os.makedirs(f"{staged}.part", exist_ok=True)
                copy_tree(copy, f"{staged}.part")
                os.rename(f"{staged}.part", staged)
    # An error in one task ends the conversion, so the tasks that follow need not run.
    if not stat_file(f"{results}-failed"):
        result, error = attempt(function, task)
        write_bytes(f"{results}/{i}", pickle.dumps((i, result, error)), durable=False)
        if error:
            write_bytes(f"{results}-failed", b"", durable=False)

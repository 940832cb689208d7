"""Independent tasks on the machines of Apache Beam: this one, or those of Flink or Dataflow.

    for i, result in run(write, tasks, arguments=["--runner", "DataflowRunner", ...], staged=folder, work="gs://bucket/data/.converting"):
        results[i] = result

Beam only decides which machine calls the function for which task. It may call it twice for one, at the same time too; so
results are files, and the function has to write the same bytes each time.
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
    """Yields position and result of each task, as `engine.run` does, once all are done.

    Args:
      function: Is pickled.
      tasks: What it is called with.
      arguments: Flags of Beam and its runner.
      staged: Folder of this machine that the function reads; other machines get it from a bucket.
      work: Folder of all machines, for results.

    Raises:
      ProcessLostError: If the job failed. What `function` raises is raised.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise UserError(
            "--engine beam needs an environment with Apache Beam; see requirements-beam.lock"
        ) from None
    # Of its own machines Beam tells more than anybody wants, but where to watch a job on others is
    # worth a line.
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
        jobs.append(pipeline.run())  # Some runners return when all is done, others at once.
        jobs[0].wait_until_finish()

    guard, thread = Guard(), threading.Thread(target=execute, daemon=True)
    os.environ[MARK] = guard.mark(
        "beam"
    )  # Of workers on this machine, which would outlive this process.
    tempfile.tempdir = guard.scratch  # Beam leaves folders behind.
    # Beam's threads end so when a worker of this machine was killed, and Beam waits for it for
    # ever.
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
    """Computes a task on a worker of Beam, and writes its result or error to a file."""
    i, task = numbered
    if not os.path.isdir(staged):
        with locked(f"{staged}.lock"):
            if not os.path.isdir(staged):
                os.makedirs(f"{staged}.part", exist_ok=True)
                copy_tree(copy, f"{staged}.part")
                os.rename(f"{staged}.part", staged)
    if not stat_file(f"{results}-failed"):  # What another one raised ends the conversion.
        result, error = attempt(function, task)
        write_bytes(f"{results}/{i}", pickle.dumps((i, result, error)), durable=False)
        if error:
            write_bytes(f"{results}-failed", b"", durable=False)

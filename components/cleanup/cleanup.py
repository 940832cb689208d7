"""Deletes what a run made and nobody needs, and stops what it left running.

A run's directory keeps its summary, report, logs, journal and model. Three kinds of things can go:
  * temporary files: the exit handler deletes these itself after a success;
  * checkpoints of a finished job: only a resume needs them;
  * intermediate results of the pipeline's steps, except a dataset that a run's summary or the cache points at.
After a failure nothing goes by itself: it is the evidence, and what a resume starts from.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import time
from collections.abc import Iterable, Iterator

import psutil

from trainer import done
from trainer.errors import UserError

JOURNAL = "cleanup.jsonl"
_TERMINATE_S = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """Something that can go: where it is, its size, and why it is not needed."""

    path: pathlib.Path
    bytes: int
    why: str


def temporary(run_dir: str) -> list[Candidate]:
    """The run's temporary files."""
    run = _run(run_dir)
    found = [run / "tmp", *run.glob("job/*.partial"), *run.glob("job/**/*.tmp")]
    return [_candidate(run, path, "temporary") for path in found if path.exists()]


def unneeded(run_dir: str) -> list[Candidate]:
    """All that can go: temporary files, checkpoints of the finished job, intermediate results.

    Raises:
      UserError: If this is no run's directory, or the run is still going on.
    """
    run = _run(run_dir)
    found = temporary(run_dir)
    if (run / "job" / "checkpoints").is_dir() and done.load(str(run / "job")):
        found.append(_candidate(run, run / "job" / "checkpoints", "checkpoints of a finished job"))
    artifacts = run / "artifacts"
    kept = set(_datasets_in_use(run.parent))
    for path in sorted(p for p in artifacts.glob("*/*") if p.is_dir()):
        if not any(dataset.is_relative_to(path.resolve()) for dataset in kept):
            found.append(_candidate(run, path, "intermediate results"))
    return found


def delete(run_dir: str, candidates: Iterable[Candidate]) -> int:
    """Deletes them, noting each in the run's `cleanup.jsonl`. Returns the bytes freed.

    Raises:
      UserError: If one is not inside the run's directory; nothing outside is ever touched, nor through a link.
    """
    run, freed = _run(run_dir), 0
    with (run / JOURNAL).open("a", encoding="utf-8") as journal:
        for candidate in candidates:
            _inside(run, candidate.path)
            if candidate.path.is_dir():
                shutil.rmtree(candidate.path)
            else:
                candidate.path.unlink(missing_ok=True)
            line = {"time": round(time.time(), 3), "deleted": str(candidate.path), "bytes": candidate.bytes}
            journal.write(json.dumps({**line, "why": candidate.why}) + "\n")
            freed += candidate.bytes
    return freed


def stop_replicas(job_dir: str) -> list[int]:
    """Ends training processes of this job that are still running here. Returns their process ids."""
    left = [p for p in psutil.process_iter(["cmdline"]) if _trains(p.info["cmdline"] or [], os.path.abspath(job_dir))]
    for process in left:
        process.terminate()
    _, alive = psutil.wait_procs(left, timeout=_TERMINATE_S)
    for process in alive:
        process.kill()
    return [process.pid for process in left]


def _trains(command: list[str], job_dir: str) -> bool:
    if "trainer.task" not in command or "--job-dir" not in command[:-1]:
        return False
    return os.path.abspath(command[command.index("--job-dir") + 1]) == job_dir


def _run(run_dir: str) -> pathlib.Path:
    run = pathlib.Path(run_dir).resolve()
    if not (run / "run.json").is_file():
        raise UserError(f"{run_dir}: not the directory of a pipeline run (there is no run.json in it)")
    return run


def running(run_dir: str) -> bool:
    """Whether the run's process is alive."""
    owner = json.loads((_run(run_dir) / "run.json").read_text(encoding="utf-8"))["owner"]
    try:
        return psutil.Process(owner["pid"]).create_time() == owner["create_time"]
    except psutil.NoSuchProcess:
        return False


def _inside(run: pathlib.Path, path: pathlib.Path) -> None:
    resolved = path.resolve()
    if path.is_symlink() or resolved == run or not resolved.is_relative_to(run):
        raise UserError(f"{path} is not inside the run {run}; nothing outside a run is deleted")


def _candidate(run: pathlib.Path, path: pathlib.Path, why: str) -> Candidate:
    _inside(run, path)
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file() and not p.is_symlink()]
    return Candidate(path=path, bytes=sum(p.stat().st_size for p in files), why=why)


def _datasets_in_use(runs: pathlib.Path) -> Iterator[pathlib.Path]:
    """Datasets that another step may read again: of every run's summary, and of every cache entry."""
    for summary in runs.glob("*/summary.json"):
        if dataset := json.loads(summary.read_text(encoding="utf-8"))["paths"].get("dataset"):
            yield pathlib.Path(dataset).resolve()
    for entry in (runs / ".cache").glob("*.json"):
        for output in json.loads(entry.read_text(encoding="utf-8")).values():
            if isinstance(output, dict) and "uri" in output:
                yield pathlib.Path(output["uri"]).resolve()

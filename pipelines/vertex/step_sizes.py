"""Sizes of the machines that a run's steps have, by what lies in the bucket.

submission, told = sized(submission, like="training-20260102-030405-6789")

A step on Vertex AI gets the CPUs and the memory that are asked for, and without that 4 and 16 GB. A disk cannot be asked for: it is
that of any custom job, 100 GB.
"""

import dataclasses
import itertools
from collections.abc import Iterable

from common.errors import UserError
from common.storage.files import list_files
from common.storage.storage import File
from pipelines.vertex.submission import Submission

_GB = 1_000_000_000
_CPUS = (4, 8, 16, 32, 64, 96)  # each with 4 GB
_MOST = ("96", "624G")
_CPU_GB = 5.0  # of a source, for one CPU: minutes
_BASE_GB = 8.0  # a program with TensorFlow and its batches
_PACKED, _TIMES = (".gz", ".tgz", ".xz", ".zip", ".zst"), 5


def sized(submission: Submission, like: str | None) -> tuple[Submission, list[str]]:
    """The run with such machines as its data takes, and a line on each step for which they are chosen.

    What was given stays. `like` is the newest run that has trained the same: its export says how large a model is.
    """
    files = {place: list_files(place) for place in submission.sources}
    for place in (place for place in files if not files[place]):
        raise UserError(f"--source {place}: there is nothing")
    source = gigabytes(itertools.chain(*files.values()))
    export = gigabytes(list_files(f"{submission.job['pipeline_root']}/{like}/job/model")) if like else 0.0
    is_table = "columns:" in submission.values["schema"]
    sizes = step_sizes(source=source, export=export, is_table=is_table)
    larger = {step: size for step, size in sizes.items() if size != _machine(0, 0)}  # the others get that anyway
    sized = dataclasses.replace(submission, resources={**larger, **submission.resources})
    why = {"convert": f"{source:,.1f} GB of source"}
    why["evaluate"] = f"a model of {export:,.1f} GB" if like else "a model whose size is not known yet"
    chosen = {step: sizes[step] for step in sizes if step not in submission.resources}
    return sized, [f"  {step:<9} {cpus} CPUs, {memory}B: {why[step]}" for step, (cpus, memory) in chosen.items()]


def gigabytes(files: Iterable[File]) -> float:
    """What files hold; those that are packed are taken for five times as much."""
    return sum(file.num_bytes * (_TIMES if file.path.endswith(_PACKED) else 1) for file in files) / _GB


def step_sizes(*, source: float, export: float, is_table: bool) -> dict[str, tuple[str, str]]:
    """CPUs and memory of the steps that may need more than any gets, by what is converted, and exported, in GB."""
    # A candidate and a champion are loaded, each into about twice its bytes; of a table, so is the test split, a fifth.
    memory = {"convert": _BASE_GB, "evaluate": _BASE_GB + 4 * export + is_table * source / 2}
    cpus = {"convert": source / _CPU_GB, "evaluate": 1.0}
    return {step: _machine(cpus[step], memory[step]) for step in memory}


def _machine(cpus: float, memory_gb: float) -> tuple[str, str]:
    fitting = (each for each in _CPUS if each >= cpus and 4 * each >= memory_gb)
    return next(((str(each), f"{4 * each}G") for each in fitting), _MOST)

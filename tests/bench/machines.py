"""How long N machines take to convert a table from a bucket into a bucket: a model, and measured times beside its own.

What one process has to do in each stage is measured once, at a store without limits: processor time, bytes both ways, and
how many requests follow one another (by how much longer it takes when each takes longer). All else follows from the
bandwidth of a connection, the time of a request, and how the pieces are shared out. The measured tasks are processes of this
machine at a store that is slow enough for the network, not the cores, to be what they wait for.
"""

import collections
import contextlib
import dataclasses
import io
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from unittest import mock

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.tables.text_files import _SCANNED_AHEAD
from components.convert.writing import output
from components.files.listing import listed
from components.files.reading import _MOST_BYTES
from components.files.store import COUNTS, THREADS
from tests.bench import data
from tests.bench.slow_store import served

_POLL_S = 2.0  # components.convert.running looks so often for what it waits for
_STAGES = ("cut", "look", "write", "merge")
_LATENCY_S = 0.2  # of the run that tells how many requests follow one another
_NETWORKS = ((5, 0.05), (10, 0.05))  # MB/s of a connection, seconds of a request
_PIECE_BYTES, _SHARD_BYTES = 64e6, 128e6  # of a large source, without --shards
_SHARD_MB = 16  # of what is measured, so that shards are of one part or two, as those are
# Taken for n1-standard-8 on Vertex AI: of a connection and of a machine half of what is published; see docs/BENCHMARKS.md.
_VCPUS, _VERTEX = 8, {"connection_bytes_s": 100e6, "machine_bytes_s": 875e6, "latency_s": 0.05}
_SOURCE, _OUTPUT = "gs://demo/trips.csv", "gs://demo/out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """What one process does in a stage, of all pieces."""

    busy_s: float
    requests: float  # that follow one another
    read_bytes: float
    written_bytes: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """A conversion: its stages, its source's pieces and files, and how often the store is asked to join shards, many at once."""

    stages: Mapping[str, Stage]
    pieces: int
    files: int = 1
    rounds: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machines:
    """Machines of one kind, and their network; `cores` are those of all together."""

    count: int
    processes: int = 1
    cores: float = math.inf
    connection_bytes_s: float
    machine_bytes_s: float = math.inf
    latency_s: float
    start_s: float


def predicted(work: Work, machines: Machines) -> dict[str, float]:
    """By stage, the seconds it takes."""
    n, each, stages, pieces = machines.count, machines.processes, work.stages, work.pieces
    turns = math.ceil(math.ceil(pieces / n) / each)

    def spent(stage: Stage, parts: int, connections: int = each, ahead: int = 1) -> float:
        """What one of so many equal parts takes: ranges are fetched while one is looked at, the rest follows on each other."""
        bytes_s = min(machines.connection_bytes_s, machines.machine_bytes_s / connections)
        busy_s, read_bytes = stage.busy_s / parts, stage.read_bytes / parts
        first_s = min(read_bytes, _MOST_BYTES) / bytes_s
        others = max(0.0, read_bytes / _MOST_BYTES - 1 - ahead)  # ranges, so many at once
        others_s = others / ahead * (_MOST_BYTES / bytes_s + machines.latency_s)
        written_s = stage.written_bytes / parts / bytes_s
        return stage.requests / parts * machines.latency_s + first_s + max(busy_s, others_s) + written_s

    def all_do(stage: Stage) -> float:
        return max(turns * spent(stage, pieces), stage.busy_s / machines.cores)

    waits = 1 - 1 / n  # all are on their way a poll after the first one, or sooner
    scans, merge = min(work.files, each), stages["merge"]
    scan_s = spent(stages["cut"], scans, scans * (1 + _SCANNED_AHEAD), _SCANNED_AHEAD)
    return {
        "start": machines.start_s * max(1, n / machines.cores),
        "cut": max(scan_s, stages["cut"].busy_s * n / machines.cores) + waits * _POLL_S,
        "look": all_do(stages["look"]) + waits * _POLL_S,
        "write": all_do(stages["write"]) + waits * (_POLL_S / 2 + 2 * pieces / THREADS * machines.latency_s),
        "merge": spent(dataclasses.replace(merge, read_bytes=merge.read_bytes / THREADS), 1, THREADS),
    }


def _measured(root: pathlib.Path, times: int) -> Work:
    """What a process does for the taxi trips so many times."""
    header, *lines = data.TAXI.read_text().splitlines(keepends=True)
    (root / "buckets/demo").mkdir(parents=True, exist_ok=True)
    (root / "buckets/demo/trips.csv").write_text("".join([header, *lines * times]))
    options = Options(dataset="taxi", source=_SOURCE, output=_OUTPUT, shard_mb=_SHARD_MB, processes=1)
    walls, stages = collections.defaultdict(list), {}
    for latency_s in (0.0, _LATENCY_S):
        with _store(root, latency_s=latency_s):
            for stage in _STAGES:
                before, started, busy_s = COUNTS.told(), time.perf_counter(), time.process_time()
                with contextlib.redirect_stdout(io.StringIO()):
                    manifest = convert(dataclasses.replace(options, stage=stage))
                busy_s, told = time.process_time() - busy_s, COUNTS.told()
                walls[stage].append(time.perf_counter() - started)
                read, written = (told[name] - before[name] for name in ("bytes_read", "bytes_written"))
                stages.setdefault(stage, Stage(busy_s=busy_s, requests=0, read_bytes=read, written_bytes=written))
                if stage == "write":
                    pieces = sum("/piece-" in note.path for note in listed(output.work(_OUTPUT)))
    requests = {stage: max(0.0, slow - quick) / _LATENCY_S for stage, (quick, slow) in walls.items()}
    stages = {stage: dataclasses.replace(stages[stage], requests=requests[stage]) for stage in _STAGES}
    made = sum(len(split.shards) for split in manifest.splits.values())
    return Work(stages=stages, pieces=pieces, rounds=math.ceil(made / THREADS))


@contextlib.contextmanager
def _store(root: pathlib.Path, **limits: float) -> Iterator[None]:
    shutil.rmtree(root / "buckets/demo/out", ignore_errors=True)
    with served(root / "buckets", **limits) as host, mock.patch.dict(os.environ, STORAGE_EMULATOR_HOST=host):
        yield


def _run(count: int) -> float:
    """Seconds that so many tasks take together, one process each."""
    words = ["--dataset", "taxi", "--source", _SOURCE, "--output", _OUTPUT, "--processes", "1"]
    command = [sys.executable, "-m", "components.convert", *words, "--shard-mb", str(_SHARD_MB)]
    started = time.perf_counter()
    tasks = [subprocess.Popen([*command, f"--task={i}/{count}"], stdout=subprocess.DEVNULL) for i in range(count)]
    if any([task.wait() for task in tasks]):
        raise RuntimeError("a task failed")
    return time.perf_counter() - started


def _start_s() -> float:
    """Processor time of a task before it does anything."""
    before = os.times()
    subprocess.run([sys.executable, "-c", "import components.convert.__main__, google.cloud.storage"], check=True)
    return sum(os.times()[2:4]) - sum(before[2:4])


def _of_a_terabyte(small: Work, large: Work) -> Work:
    """What there would be to do for so much in many files, pieces of 64 MB and shards of 128 MB, if it grows on as it did."""

    def more(stage: str, field: str) -> float:
        return max(0.0, getattr(large.stages[stage], field) - getattr(small.stages[stage], field))

    by_bytes = 1e12 / more("cut", "read_bytes")
    pieces, rounds = 1e12 / _PIECE_BYTES, more("write", "written_bytes") * by_bytes / _SHARD_BYTES / THREADS
    by_pieces, by_rounds = pieces / (large.pieces - small.pieces), rounds / (large.rounds - small.rounds)
    stages = {
        stage: Stage(
            busy_s=more(stage, "busy_s") * grown,
            requests=more(stage, "requests") * (by_rounds if stage == "merge" else by_pieces),
            read_bytes=more(stage, "read_bytes") * grown,
            written_bytes=more(stage, "written_bytes") * grown,
        )
        for stage, grown in zip(_STAGES, (by_bytes, by_bytes, by_bytes, by_rounds), strict=True)
    }
    return Work(stages=stages, pieces=round(pieces), files=1000, rounds=round(rounds))


def check(networks: Iterable[tuple[float, float]] = _NETWORKS, counts: Iterable[int] = (1, 2, 4, 8)) -> Mapping:
    """Prints what is measured beside what the model makes of it, for slower and faster connections, and what it says of a terabyte."""
    root = data.scratch()
    large, small, start_s = _measured(root, 64), _measured(root, 16), _start_s()
    for work in (small, large):
        print(f"  {work.pieces} pieces, {start_s:.1f} s to start; one process, no limits:")
        for name, stage in work.stages.items():
            sizes = f"{stage.read_bytes / 1e6:6.1f} MB read {stage.written_bytes / 1e6:6.1f} MB written"
            print(f"    {name:<6} {stage.busy_s:6.2f} s {stage.requests:5.0f} requests in turn {sizes}")
    terabyte, of_n = _of_a_terabyte(small, large), {"start_s": start_s, **_VERTEX}
    for count in (1, 8, 32, 128):
        machines = Machines(count=count, cores=count * _VCPUS, processes=2 * _VCPUS, **of_n)
        _tell(f"1 TB, {count:3} machines", predicted(terabyte, machines))
    for megabytes_s, latency_s in networks:
        for count in counts:
            limits = {"connection_bytes_s": megabytes_s * 1e6, "latency_s": latency_s}
            machines = Machines(count=count, cores=os.cpu_count(), start_s=start_s, **limits)
            with _store(root, **limits):
                wall_s = _run(count)
            network = f"{megabytes_s:3} MB/s {1000 * latency_s:3.0f} ms {count} tasks"
            _tell(network, predicted(small, machines), wall_s)
    return {}


def _tell(what: str, by_stage: Mapping[str, float], wall_s: float = 0.0) -> None:
    total_s, parts = sum(by_stage.values()), " ".join(f"{name} {s:.1f}" for name, s in by_stage.items())
    measured = f", {wall_s:6.1f} s measured, ratio {total_s / wall_s:.2f}" if wall_s else ""
    print(f"  {what}: {total_s:6.1f} s predicted ({parts}){measured}", flush=True)

"""Contestants that do the same work in turn, and the table of their speeds.

On shared machines absolute rates drift by a factor of two within minutes, so all run in alternation, and what counts is
the median of the ratios of neighbouring laps. Beside wall time stands processor time, which other programs disturb less.

    race({"ours": ours, "the usual way": usual}, repeats=5)
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

import psutil


class Child:
    """A contestant in a process of its own, where threads, precision and library are its own too.

    The process makes what it needs before it is asked for a lap; see `tests.bench.serve`.
    """

    def __init__(self, module: str, *args: str, python: str = sys.executable) -> None:
        """Starts `python -m module args`."""
        self._process = subprocess.Popen(
            [python, "-m", module, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
        )

    def __call__(self) -> float:
        """Runs a lap; returns its examples."""
        self._process.stdin.write("lap\n")
        self._process.stdin.flush()
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)["examples"]
        raise RuntimeError(f"{' '.join(self._process.args)} ended with exit code {self._process.wait()}")

    def cpu_s(self) -> float:
        """Processor time so far, with processes that it waited for."""
        return sum(psutil.Process(self._process.pid).cpu_times()[:4])

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lap:
    """Examples a second of wall time and of processor time."""

    wall: float
    cpu: float


def race(contestants: Mapping[str, Callable[[], float]], repeats: int) -> None:
    """Runs all in turn, `repeats` times after a warm-up, and prints medians and ratios to the last."""
    laps: dict[str, list[Lap]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, run in contestants.items():
            lap = _lap(run)
            if repeat:
                laps[name].append(lap)
    for run in contestants.values():
        if isinstance(run, Child):
            run.close()
    *_, peer = contestants
    for name, own in laps.items():
        wall = sorted(a.wall / b.wall for a, b in zip(own, laps[peer], strict=True))
        cpu = sorted(a.cpu / b.cpu for a, b in zip(own, laps[peer], strict=True))
        print(
            f"  {name:<36} {statistics.median(lap.wall for lap in own):>10,.0f} examples/s  "
            f"{statistics.median(wall):6.2f} [{wall[0]:.2f}, {wall[-1]:.2f}]   "
            f"a CPU-second {statistics.median(cpu):6.2f} [{cpu[0]:.2f}, {cpu[-1]:.2f}]",
            flush=True,
        )


def _lap(run: Callable[[], float]) -> Lap:
    cpu_s = run.cpu_s if isinstance(run, Child) else lambda: sum(os.times()[:4])  # with processes it waited for
    start, start_cpu = time.perf_counter(), cpu_s()
    examples = run()
    return Lap(wall=examples / (time.perf_counter() - start), cpu=examples / max(cpu_s() - start_cpu, 1e-2))

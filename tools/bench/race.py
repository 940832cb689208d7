"""Contestants that do the same work in turn, and the table of their speeds.

On shared machines absolute rates drift by a factor of two within minutes, so all run in
alternation, and what counts is the median of the ratios of neighbouring laps. Beside wall time
stands processor time, which other programs disturb less.

    race({"ours": ours, "the usual way": usual}, repeats=5)
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping

import numpy as np
import psutil

from tests.programs import start_python

Lap = Callable[[], float]  # Runs once; returns its examples.
Contestants = Callable[[], Mapping[str, Lap]]  # Prepares a race; the last is compared to.


class Child:
    """A contestant in a process of its own, where threads, precision and library are its own too.

    The process makes what it needs before it is asked for a lap; see `tools.bench.serve`.
    """

    def __init__(self, module, *args):
        """Starts `python -m module args`."""
        env = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        streams = {"stdin": subprocess.PIPE, "stderr": None}
        self._process = start_python("-m", module, *args, env=env, **streams)

    def __call__(self):
        """Runs a lap; returns its examples."""
        self._process.stdin.write("lap\n")
        self._process.stdin.flush()
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)["examples"]
        raise RuntimeError(f"{self._process.args} ended with exit code {self._process.wait()}")

    def cpu_s(self):
        """Processor time so far, with processes that it waited for."""
        return sum(psutil.Process(self._process.pid).cpu_times()[:4])

    def close(self):
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


def race(contestants, repeats):
    """Runs all in turn, `repeats` times after a warm-up; prints medians and ratios to the last."""
    turns = [[_lap(run) for run in contestants.values()] for _ in range(repeats + 1)]
    for run in contestants.values():
        if isinstance(run, Child):
            run.close()
    laps = np.array(turns[1:])  # [repeats, contestants, 2]
    speeds = np.median(laps[..., 0], axis=0)
    ratios = np.sort(laps / laps[:, -1:], axis=0).transpose(1, 2, 0)
    for name, speed, ratio in zip(contestants, speeds, ratios, strict=True):
        wall, cpu = (f"{np.median(each):6.2f} [{each[0]:.2f}, {each[-1]:.2f}]" for each in ratio)
        print(f"  {name:<36} {speed:>10,.0f} examples/s  {wall}   a CPU-second {cpu}", flush=True)


def _lap(run):
    """Examples a second of wall time and of processor time."""
    start, start_cpu = time.perf_counter(), _cpu_s(run)
    examples = run()
    return examples / (time.perf_counter() - start), examples / max(_cpu_s(run) - start_cpu, 1e-2)


def _cpu_s(run):
    return run.cpu_s() if isinstance(run, Child) else sum(os.times()[:4])

"""What the launcher itself costs: a job of two replicas that do nothing. The figure is in seconds, it has no peer."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

_RUNS = 9


def launcher() -> Mapping[str, Callable[[], float]]:
    """Prints the medians of wall and processor time; there is nothing to race."""
    command = [sys.executable, "-m", "components.train", "--cluster", "clusters/local-sync.yaml", "--command", "true"]
    wall_s, cpu_s = [], []
    for _ in range(_RUNS):
        with tempfile.TemporaryDirectory() as job_dir:
            start, start_cpu = time.perf_counter(), sum(os.times()[2:4])
            subprocess.run([*command, "--job-dir", job_dir], check=True, stdout=subprocess.DEVNULL)
            wall_s.append(time.perf_counter() - start)
            cpu_s.append(sum(os.times()[2:4]) - start_cpu)
    print(
        f"  {statistics.median(wall_s):.2f} s, of processor time {statistics.median(cpu_s):.2f} s (medians of {_RUNS})"
    )
    return {}

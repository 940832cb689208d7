"""Tiny replicas without TensorFlow, and what runs them."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from components.train.cluster import Cluster, Pool
from components.train.plan import ProcessPlan, plan_processes
from components.train.process import Patience, run

# Each replica runs the piece of Python that is its own.
FAKE = """
import json, os, signal, subprocess, sys, time
task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief", "index": 0})
exec(json.loads(sys.argv[1]).get(f"{task['type']}/{task['index']}", "time.sleep(60)"))
"""
LAUNCH = """
import pickle, sys
from components.train.process import run
sys.exit(run(*pickle.load(open(sys.argv[1], "rb"))))
"""
SYNC = Cluster(strategy="multi_worker_mirrored", chief=Pool(), worker=Pool(replicas=2))
PS = Cluster(strategy="parameter_server", chief=Pool(), worker=Pool(), ps=Pool())
QUICK = Patience(stop_s=0.3, failure_s=0.3, join_s=0.3, evaluator_s=0.3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """Runs jobs of fake replicas in a directory of their own."""

    path: Path

    def plan(self, cluster: Cluster, **scripts: str) -> ProcessPlan:
        """A plan in which `chief_0="..."` is what chief/0 runs; who is not named sleeps for a minute."""
        scripts = {name.replace("_", "/"): script for name, script in scripts.items()}
        command = [sys.executable, "-S", "-c", FAKE, json.dumps(scripts)]
        ports = range(20_001, 20_101)
        return plan_processes(
            cluster, command, job_dir=str(self.path), log_dir=str(self.path / "logs"), ports=ports, cores=2
        )

    def run(self, plan: ProcessPlan, patience: Patience = QUICK) -> tuple[int, list[str]]:
        """Exit code and merged lines of a job run in this process."""
        with open(self.path / "merged", "w+b") as merged:
            code = run(plan, patience, merged.fileno())
            merged.seek(0)
            return code, merged.read().decode().splitlines()

    def start(self, plan: ProcessPlan, patience: Patience = QUICK, **env: str) -> subprocess.Popen:
        """A launcher in a process of its own, once all its replicas run."""
        job = self.path / "job.pickle"
        job.write_bytes(pickle.dumps((plan, patience)))
        launcher = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(job)], stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
        )
        wait_until(lambda: len(self.processes()) >= len(plan.replicas))
        return launcher

    def processes(self) -> list[psutil.Process]:
        """What runs of this bench's jobs: replicas, their descendants, guards."""
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("TRAINER_STATUS", "").startswith(f"{self.path}/")
        except (psutil.Error, OSError):
            return False


def wait_until(condition: Callable[[], object], limit_s: float = 10.0) -> None:
    """Polls until `condition` holds; fails after `limit_s`."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)

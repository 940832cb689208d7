"""Custom jobs of Vertex AI that really run: every replica of every pool is a process here.

Names, addresses and environment are those of "Distributed training" and "Environment variables";
the life of a job is that of "Understand the custom training service" in Vertex AI's documentation:

* The job ends well as soon as the chief, pool 0, ends with 0; the other replicas are told to stop.
* A replica that ends with 6, 11, 134 or 139 has the job tried again, three times at most; another
  code than 0 is the user's error and ends the job.
* A machine that is lost (`take` without notice) is replaced under the same name, five times at
  most; with `restart_job_on_worker_restart` all replicas start again then.
* Spot machines that are taken (with notice): notice and SIGTERM, SIGKILL after 30 s; the job is
  tried again, six times at most, and then fails with a STOCKOUT error. That all replicas start
  again is a guess, and so are that error's words.
* A job for whose machines there is no capacity fails before anything starts. (Vertex AI first tries
  three times.)

All replicas share this machine, so each has a port of its own in place of 2222, and an address of
its own in 127/8.
"""

import dataclasses
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time
from collections.abc import Iterable

import psutil
from google.cloud import aiplatform_v1 as v1

from components.train.backends.process import PORTS
from tests.cloud.collection import now

POOLS = ("chief", "worker", "ps", "evaluator")  # what TF_CONFIG calls the worker pools, by position
GRACE_S = 30.0
_RETRIED_CODES = {6, 11, 134, 139}
_MOST = {"crash": 3, "lost": 5, "preempted": 6}
_State = v1.JobState
_FAILED_PRECONDITION, _RESOURCE_EXHAUSTED = 9, 8  # the second is a guess


@dataclasses.dataclass
class Replica:
    """One replica of a job."""

    name: str  # such as worker/0
    task: str  # such as workerpool1-0
    argv: list[str]
    env: dict[str, str]  # what is added to the environment
    process: psutil.Popen | None = None
    loss: str = ""  # what is happening to its machine: lost, preempted or nothing


class Run:
    """A custom job that runs until it has ended; the state of its resource is kept true."""

    def __init__(
        self,
        job: v1.CustomJob,
        logs: pathlib.Path,
        stockouts: dict[str, int],
        environment: dict[str, str],
    ) -> None:
        """`stockouts`: by machine type, how many jobs more find none of it."""
        self._stockouts, self._environment = stockouts, {**os.environ, **environment}
        self.job, self.number = job, job.name.rpartition("/")[2]
        self.events: list[str] = []
        self._logs = logs / f"job-{self.number}"
        self._budget = dict.fromkeys(_MOST, 0)
        self.replicas = {replica.name: replica for replica in self._replicas()}
        self._logs.mkdir(parents=True)
        threading.Thread(target=self._watch, daemon=True).start()

    def take(self, name: str, notice_s: float, *, last: bool = False) -> None:
        """Takes the replica's machine away: with a notice it is a Spot machine, told by SIGTERM; SIGKILL is its end.

        `last`: it is as if that had happened so often that the job is not tried again.
        """
        if last:
            self._budget["preempted"] = _MOST["preempted"]
        replica = self.replicas[name]
        replica.loss = "preempted" if notice_s else "lost"
        _signal(replica.process, signal.SIGTERM if notice_s else signal.SIGKILL)
        threading.Timer(notice_s, _signal, (replica.process, signal.SIGKILL)).start()

    def _replicas(self) -> Iterable[Replica]:
        spec = self.job.job_spec
        names = {
            i: [
                f"cmle-training-workerpool{i}-{self.number}-{n}"
                for n in range(pool.replica_count or 1)
            ]
            for i, pool in enumerate(spec.worker_pool_specs)
        }
        with open("/etc/hosts", "a") as file:
            file.writelines(f"127.0.0.1 {name}\n" for pool in names.values() for name in pool)
        at = {
            f"workerpool{i}": [f"{name}:{random.choice(PORTS)}" for name in pool]
            for i, pool in names.items()
        }
        for i, pool in enumerate(spec.worker_pool_specs):
            for index in range(len(names[i])):
                task = {"type": f"workerpool{i}", "index": index}
                env = {e.name: e.value for e in pool.container_spec.env}
                env["CLUSTER_SPEC"] = json.dumps(
                    {"cluster": at, "environment": "cloud", "task": task}
                )
                env["CLOUD_ML_JOB_ID"] = self.number
                if sum(map(len, names.values())) > 1:
                    members = {
                        POOLS[p]: at[f"workerpool{p}"] for p in names if POOLS[p] != "evaluator"
                    }
                    told = {
                        "cluster": members,
                        "environment": "cloud",
                        "task": {**task, "type": POOLS[i]},
                    }
                    env["TF_CONFIG"] = json.dumps(told)
                if base := spec.base_output_directory.output_uri_prefix.rstrip("/"):
                    env |= {
                        "AIP_MODEL_DIR": f"{base}/model/",
                        "AIP_CHECKPOINT_DIR": f"{base}/checkpoints/",
                    }
                    env["AIP_TENSORBOARD_LOG_DIR"] = f"{base}/logs/"
                argv = [*pool.container_spec.command, *pool.container_spec.args]
                argv = [sys.executable if part in ("python", "python3") else part for part in argv]
                yield Replica(f"{POOLS[i]}/{index}", f"workerpool{i}-{index}", argv, env)

    def _start(self, replica: Replica) -> None:
        replica.loss = ""
        with (self._logs / f"{replica.name.replace('/', '-')}.log").open("ab") as log:
            replica.process = psutil.Popen(
                replica.argv,
                env={**self._environment, **replica.env},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._tell(f"{replica.name} started")

    def _watch(self) -> None:
        """Starts all replicas, and follows the job to its end."""
        for machine in {
            pool.machine_spec.machine_type for pool in self.job.job_spec.worker_pool_specs
        }:
            if self._stockouts.get(machine):
                self._stockouts[machine] -= 1
                why = (
                    "Resources are insufficient in region: us-central1. Try a different region "
                    "or use a different accelerator."
                )
                self._fail(why, _RESOURCE_EXHAUSTED)
                self.job.end_time = now()
                return
        for replica in self.replicas.values():
            self._start(replica)
        self.job.start_time, self.job.state = now(), _State.JOB_STATE_RUNNING
        timeout_s = self.job.job_spec.scheduling.timeout.total_seconds() or 7 * 86400
        deadline = time.monotonic() + timeout_s
        while self.job.state == _State.JOB_STATE_RUNNING:
            time.sleep(0.1)
            for replica in self.replicas.values():  # the end of one may have started others again
                if replica.process is None or (code := replica.process.poll()) is None:
                    continue
                replica.process = None
                self._tell(f"{replica.name} ended with {code}")
                self._judge(replica, code % 256 if code >= 0 else 128 - code)
            if time.monotonic() > deadline:
                self._fail(f"The job ran for its longest time of {timeout_s:g} s.")
        self._stop()
        self.job.end_time = now()
        if self.job.state == _State.JOB_STATE_CANCELLING:
            self.job.state = _State.JOB_STATE_CANCELLED
        self._tell(f"{self.job.state.name} {self.job.error.message}")

    def _judge(self, replica: Replica, code: int) -> None:
        """Decides what follows the end of a replica."""
        scheduling = self.job.job_spec.scheduling
        cause = replica.loss or ("crash" if code in _RETRIED_CODES else "")
        if self.job.state != _State.JOB_STATE_RUNNING or (
            not cause and code == 0 and replica.name != "chief/0"
        ):
            return
        if not cause and code == 0:
            self.job.state = _State.JOB_STATE_SUCCEEDED
        elif not cause or scheduling.disable_retries or self._budget[cause] >= _MOST[cause]:
            if cause == "preempted":
                self._fail(f"STOCKOUT: {replica.task} was preempted.", _RESOURCE_EXHAUSTED)
            else:
                self._fail(
                    f"The replica {replica.task} exited with a non-zero status of {code}. "
                    "Termination reason: Error."
                )
        else:
            self._budget[cause] += 1
            if cause == "lost" and not scheduling.restart_job_on_worker_restart:
                self._start(replica)
                return
            self._stop()
            for each in self.replicas.values():
                self._start(each)

    def _fail(self, why: str, code: int = _FAILED_PRECONDITION) -> None:
        self.job.error.code, self.job.error.message = code, why
        self.job.state = _State.JOB_STATE_FAILED

    def _stop(self) -> None:
        """Ends all replicas: SIGTERM, and SIGKILL after the grace."""
        processes = [replica.process for replica in self.replicas.values() if replica.process]
        for process in processes:
            _signal(process, signal.SIGTERM)
        for process in psutil.wait_procs(processes, timeout=GRACE_S)[1]:
            _signal(process, signal.SIGKILL)
            process.wait()
        for replica in self.replicas.values():
            replica.process = None

    def _tell(self, event: str) -> None:
        self.events.append(event)
        print(f"job {self.number}: {event}", file=sys.stderr, flush=True)


def _signal(process: psutil.Popen | None, number: int) -> None:
    """Signals a replica and all that it started."""
    if process and process.poll() is None:
        os.killpg(process.pid, number)

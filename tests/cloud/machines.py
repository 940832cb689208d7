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

All replicas share this machine, so each has a port of its own in place of 2222, and an address of
its own in 127/8.
"""

import collections
import dataclasses
import json
import os
import random
import signal
import sys
import threading
import time

import psutil
from google.cloud import aiplatform_v1 as v1

from common.ports import PORTS
from tests.cloud.collection import now

POOLS = ("chief", "worker", "ps", "evaluator")  # what TF_CONFIG calls the worker pools, by position
GRACE_S = 30.0
_STATE_S = 0.2  # in each state before the replicas start
_RETRIED_CODES = {6, 11, 134, 139}
_MOST = {"crash": 3, "lost": 5, "preempted": 6, "": 0}
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

    def signal(self, number):
        """Signals the process and all that it started."""
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, number)


class Run:
    """A custom job that runs until it has ended; the state of its resource is kept true."""

    def __init__(self, job, logs, environment):
        self._environment = {**os.environ, **environment}
        self.job, self.number = job, job.name.rpartition("/")[2]
        self.events = []
        job.state = _State.JOB_STATE_QUEUED
        self._logs = logs / f"job-{self.number}"
        self._tries = collections.Counter()
        self.replicas = {replica.name: replica for replica in self._replicas()}
        self._logs.mkdir(parents=True)
        threading.Thread(target=self._watch, daemon=True).start()

    def take(self, name, notice_s):
        """Takes the replica's machine away; one with a notice is a Spot machine."""
        replica = self.replicas[name]
        replica.loss = "preempted" if notice_s else "lost"
        replica.signal(signal.SIGTERM if notice_s else signal.SIGKILL)
        # Of this start alone: a later one has another process.
        threading.Timer(notice_s, dataclasses.replace(replica).signal, [signal.SIGKILL]).start()

    def _replicas(self):
        spec = self.job.job_spec
        addresses = {}
        for i, pool in enumerate(spec.worker_pool_specs):
            names = [
                f"cmle-training-workerpool{i}-{self.number}-{n}"
                for n in range(pool.replica_count or 1)
            ]
            addresses[POOLS[i]] = [f"{name}:{random.choice(PORTS)}" for name in names]
            with open("/etc/hosts", "a") as file:
                file.writelines(f"127.0.0.1 {name}\n" for name in names)
        pools = {f"workerpool{POOLS.index(role)}": at for role, at in addresses.items()}
        members = {role: at for role, at in addresses.items() if role != "evaluator"}
        common = {"CLOUD_ML_JOB_ID": self.number}
        if base := spec.base_output_directory.output_uri_prefix.rstrip("/"):
            common["AIP_MODEL_DIR"] = f"{base}/model/"
        for i, (role, pool) in enumerate(zip(addresses, spec.worker_pool_specs, strict=True)):
            container = pool.container_spec
            argv = [*container.command, *container.args]
            argv = [sys.executable if word in ("python", "python3") else word for word in argv]
            for index in range(len(addresses[role])):
                env = {each.name: each.value for each in container.env} | common
                env["CLUSTER_SPEC"] = _cluster(pools, f"workerpool{i}", index)
                if sum(map(len, addresses.values())) > 1:
                    env["TF_CONFIG"] = _cluster(members, role, index)
                yield Replica(f"{role}/{index}", f"workerpool{i}-{index}", argv, env)

    def _start(self, replicas):
        for replica in replicas:
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

    def _watch(self):
        """Starts all replicas, and follows the job to its end."""
        time.sleep(_STATE_S)
        if self.job.state == _State.JOB_STATE_QUEUED:
            self.job.state = _State.JOB_STATE_PENDING
            time.sleep(_STATE_S)
        if self.job.state == _State.JOB_STATE_PENDING:  # Else it was cancelled meanwhile.
            self._start(self.replicas.values())
            self.job.start_time, self.job.state = now(), _State.JOB_STATE_RUNNING
        while self.job.state == _State.JOB_STATE_RUNNING:
            time.sleep(0.1)
            for replica in self.replicas.values():  # the end of one may have started others again
                if replica.process and (code := replica.process.poll()) is not None:
                    replica.process = None
                    self._tell(f"{replica.name} ended with {code}")
                    if self.job.state == _State.JOB_STATE_RUNNING:
                        self._judge(replica, code % 256 if code >= 0 else 128 - code)
        self._stop()
        self.job.end_time = now()
        if self.job.state == _State.JOB_STATE_CANCELLING:
            self.job.state = _State.JOB_STATE_CANCELLED
        self._tell(f"{self.job.state.name} {self.job.error.message}")

    def _judge(self, replica, code):
        """Decides what follows the end of a replica."""
        scheduling = self.job.job_spec.scheduling
        cause = replica.loss or ("crash" if code in _RETRIED_CODES else "")
        if not cause and code == 0:
            if replica.name == "chief/0":
                self.job.state = _State.JOB_STATE_SUCCEEDED
        elif self._tries[cause] >= _MOST[cause]:
            if cause == "preempted":
                self._end(f"STOCKOUT: {replica.task} was preempted.", _RESOURCE_EXHAUSTED)
            else:
                status = f"exited with a non-zero status of {code}"
                self._end(f"The replica {replica.task} {status}. Termination reason: Error.")
        else:
            self._tries[cause] += 1
            if cause == "lost" and not scheduling.restart_job_on_worker_restart:
                self._start([replica])
            else:
                self._stop()
                self._start(self.replicas.values())

    def _end(self, why, code=_FAILED_PRECONDITION):
        self.job.error.code, self.job.error.message = code, why
        self.job.state = _State.JOB_STATE_FAILED

    def _stop(self):
        """Ends all replicas: SIGTERM, and SIGKILL after the grace."""
        running = [replica for replica in self.replicas.values() if replica.process]
        for replica in running:
            replica.signal(signal.SIGTERM)
        psutil.wait_procs([replica.process for replica in running], timeout=GRACE_S)
        for replica in running:
            replica.signal(signal.SIGKILL)
            replica.process.wait()
            replica.process = None

    def _tell(self, event):
        self.events.append(event)
        print(f"job {self.number}: {event}", file=sys.stderr, flush=True)


def _cluster(addresses, role, index):
    """A replica's place in a cluster, as JSON."""
    task = {"type": role, "index": index}
    return json.dumps({"cluster": addresses, "environment": "cloud", "task": task})

"""Small replicas without TensorFlow, and a bench that runs them."""

import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path

import psutil

from components.train.backends.backend import Job
from components.train.backends.local import LocalOptions
from components.train.backends.process import ProcessBackend
from components.train.backends.program import Program
from components.train.backends.resources import Machine
from components.train.cluster.cluster_file import Cluster, Pool
from components.train.supervision.health import Patience
from components.train.supervision.launcher_log import last_run
from components.train.supervision.output import Output
from components.train.supervision.supervisor import run
from tests.programs import start_python, wait_until

# Each replica runs the piece of Python that is its own. `tell` writes its status file; `wait_for`
# waits until files of the job directory contain a text. Importing json, or subprocess, would be
# most of a replica's time.
FAKE = """
import os, signal, sys, time
task = eval(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief", "index": 0})
attempt = int(os.environ["TRAINER_ATTEMPT"])
def tell(phase, step):
    path = os.environ["TRAINER_STATUS"]
    with open(path + ".new", "w") as file:
        file.write(f'{{"phase": "{phase}", "step": {step}}}')
    os.replace(path + ".new", path)
def wait_for(text, *names):
    for name in names:
        path = os.path.join(os.path.dirname(os.environ["TRAINER_STATUS"]), "..", name)
        while not os.path.exists(path) or text not in open(path).read(): time.sleep(0.01)
exec(eval(sys.argv[1]).get(f"{task['type']}_{task['index']}", "time.sleep(60)"))
"""
LAUNCH = """
import pickle, sys
from components.train.supervision.supervisor import run
from components.train.supervision.output import Output
plan, patience = pickle.load(open(sys.argv[1], "rb"))
with Output() as output:
    code = run(plan, output, patience)
sys.exit(code)
"""
ONE = Cluster(strategy="one_device", chief=Pool())
SYNC = Cluster(strategy="multi_worker_mirrored", chief=Pool(), worker=Pool(replicas=2))
PS = Cluster(strategy="parameter_server", chief=Pool(), worker=Pool(), ps=Pool())
EVALUATED = Cluster(strategy="one_device", chief=Pool(), evaluator=Pool())
QUICK = {
    "grace_period_s": 0.3,
    "failure_s": 0.3,
    "report_delay_s": 0,
    "join_s": 0.3,
    "evaluator_s": 0.3,
    "check_s": 0.02,
    "start_s": 60,
    "silence_s": {"training": 60},
    "stopped_s": 60,
}
SLOW = dict.fromkeys(("grace_period_s", "failure_s", "join_s", "evaluator_s"), 30)


def planned(job, log_dir):
    """Returns the plan of processes on a machine with one core and no GPU."""
    machine = Machine(name="here", cores=1, gpus=(), replicas=job.cluster.members)
    addresses = [f"127.0.0.1:{20_001 + i}" for i in range(job.cluster.replicas)]
    return ProcessBackend(LocalOptions(log_dir=str(log_dir))).job_plan(job, addresses, [machine])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """Runs jobs of fake replicas in a directory of their own."""

    path: Path

    def plan(self, cluster, **changes):
        """Returns a job by fields of `Plan` and `Patience`, and scripts of its replicas.

        Its chief/0 runs the script `chief_0`; one without a script sleeps.
        """
        limits = {name: changes.pop(name, value) for name, value in QUICK.items()}
        scripts = {name: changes.pop(name) for name in [*changes] if name[-1].isdigit()}
        command = (sys.executable, "-S", "-c", FAKE, repr(scripts))
        job = Job(cluster=cluster, program=Program(command=command, job_dir=str(self.path)))
        changes = {"max_restarts": 0, "reports": False, "notes": (), **changes}
        return dataclasses.replace(planned(job, self.path / "logs"), **changes), Patience(**limits)

    def run(self, cluster, **changes):
        """Runs a job in this process; returns its exit code and merged lines."""
        plan, patience = self.plan(cluster, **changes)
        with open(self.path / "merged", "w+b") as merged:
            with Output(merged.fileno()) as output:
                code = run(plan, output, patience)
            merged.seek(0)
            return code, merged.read().decode().splitlines()

    def start(self, cluster, **changes):
        """Starts a launcher in a process of its own, and waits until all its replicas run."""
        launcher = self.launch(cluster, **changes)
        wait_until(lambda: len(self.processes()) >= cluster.replicas)
        return launcher

    def launch(self, cluster, stdout=subprocess.PIPE, **changes):
        """Starts a launcher in a process of its own."""
        job = self.path / "job.pickle"
        job.write_bytes(pickle.dumps(self.plan(cluster, **changes)))
        env = {"TMPDIR": str(self.path), "TERM": "xterm"}
        return start_python("-c", LAUNCH, job, stdout=stdout, stderr=None, env=env)

    def events(self, kind):
        """Returns the events of this kind that the newest launcher recorded."""
        return [event for event in last_run(str(self.path)) if event["event"] == kind]

    def endings(self):
        """Returns the endings of the replicas, by name."""
        downs = sorted(self.events("down"), key=lambda event: event["replica"])
        return [event["ending"] for event in downs]

    def starts(self):
        """Returns the replicas in the order in which they started."""
        return [event["replica"] for event in self.events("up")]

    def processes(self):
        """Returns the processes of this bench's jobs: replicas, their descendants, guards."""
        return [
            process
            for process in psutil.process_iter(["environ"])
            if (process.info["environ"] or {}).get("TRAINER_STATUS", "").startswith(f"{self.path}/")
        ]


def guard_of(launcher):
    """Returns the process that cleans up after a launcher."""
    children = psutil.Process(launcher.pid).children()
    (guard,) = [child for child in children if "guard.py" in " ".join(child.cmdline())]
    return guard


def of(name, lines):
    """Returns the lines of one replica, or of the launcher, among the merged lines."""
    return [line.removeprefix(f"{name} | ") for line in lines if line.startswith(f"{name} | ")]

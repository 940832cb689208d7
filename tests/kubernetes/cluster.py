"""A Kubernetes cluster on this machine, and the jobs that run in it."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

from kubernetes import client, utils

from components.train.backends.jobset import jobset_name
from components.train.cluster.lookup import load_cluster
from tests.kubernetes.control_plane import ControlPlane, wait_for
from tests.kubernetes.kubelet import Kubelet
from tests.programs import start_python
from tests.root import ROOT

# A program of a user's own: it lives until a file tells it to end, or SIGTERM.
_PROGRAM = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
order = os.path.join(sys.argv[1], f"{task['type']}-{task['index']}")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("ready", flush=True)
with open(order + ".pid", "w") as file: file.write(str(os.getpid()))
while not os.path.exists(order): time.sleep(0.05)
with open(order) as file: code = int(file.read())
os.remove(order)
print("ends", flush=True)
sys.exit(code)
"""
SYNC = {"strategy": "multi_worker_mirrored", "chief": {}, "worker": {"replicas": 2}}
PS = {"strategy": "parameter_server", "chief": {}, "worker": {"replicas": 2}, "ps": {}}
KIND = ("jobset.x-k8s.io", "v1alpha2", "default", "jobsets")


@dataclasses.dataclass(kw_only=True)
class Job:
    """A job in the cluster, and the command that follows it.

    Attributes:
      pids: Process of each replica, such as `worker-1`, at the last wait for all of them.
    """

    cluster: "Cluster"
    job_dir: pathlib.Path
    launcher: subprocess.Popen
    replicas: set[str]
    pids: dict[str, int] = dataclasses.field(default_factory=dict)
    printed: str = ""

    @property
    def name(self):
        return jobset_name(str(self.job_dir))

    def restarted(self, replica=None):
        """Waits until all programs run, this one anew; returns the replicas that are new."""
        before = self.pids

        def are_ready():
            files = self.job_dir.glob("*.pid")
            self.pids = {file.stem: int(file.read_text() or 0) for file in files}
            alive = {process.pid for process in self.cluster.kubelet.processes(self.name)}
            is_new = not replica or self.pids[replica] != before[replica]
            return is_new and self.pids.keys() == self.replicas and {*self.pids.values()} == alive

        wait_for(are_ready)
        return {each for each in self.replicas if self.pids[each] != before.get(each)}

    def order(self, replica, exit_code):
        """Has the program of a replica end; waits until it does."""
        order = self.job_dir / replica
        (self.job_dir / "new").write_text(str(exit_code))
        (self.job_dir / "new").rename(order)
        wait_for(lambda: not order.exists())

    def evict(self, replica):
        """Has Kubernetes evict the pod of a replica."""
        role, _, index = replica.partition("-")
        pods = self.cluster.core.list_namespaced_pod(
            "default",
            label_selector=f"jobset.sigs.k8s.io/jobset-name={self.name},"
            f"jobset.sigs.k8s.io/replicatedjob-name={role},"
            f"batch.kubernetes.io/job-completion-index={index}",
        )
        (pod,) = (pod.metadata.name for pod in pods.items if pod.status.phase == "Running")
        eviction = client.V1Eviction(metadata={"name": pod})
        self.cluster.core.create_namespaced_pod_eviction(pod, "default", eviction)

    def wait_for_line(self, text):
        """Waits until the command prints a line with a text; returns the line."""
        for line in self.launcher.stdout:
            self.printed += line
            if text in line:
                return line
        raise AssertionError(f"no {text!r} in {self.printed}")

    def end(self, replica=None, exit_code=0):
        """Waits for the end of the command; returns its exit code and output.

        The program of a replica may be told to end before.
        """
        if replica:
            self.order(replica, exit_code)
        self.printed += self.launcher.stdout.read()
        return self.launcher.wait(), self.printed

    def status(self):
        """Returns the JobSet as Kubernetes shows it; None if there is none."""
        try:
            return self.cluster.objects.get_namespaced_custom_object(*KIND, self.name)
        except client.ApiException as error:
            assert error.status == 404
            return None

    def suspend(self, is_suspended):
        """Suspends or resumes the JobSet, as Kueue does."""
        patch = {"spec": {"suspend": is_suspended}}
        self.cluster.objects.patch_namespaced_custom_object(*KIND, self.name, patch)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster as a test sees it."""

    plane: ControlPlane
    kubelet: Kubelet
    core: client.CoreV1Api
    objects: client.CustomObjectsApi

    def start(self, job_dir, pools, *flags, command=None):
        """Starts a training of the command, or else of a program that obeys `Job.order`."""
        job_dir.mkdir(exist_ok=True)
        program = job_dir / "program.py"
        program.write_text(_PROGRAM)
        mount = {"name": "job", "mountPath": str(job_dir)}
        template = {
            "terminationGracePeriodSeconds": 5,
            "volumes": [{"name": "job", "hostPath": {"path": str(job_dir)}}],
            "containers": [{"name": "trainer", "volumeMounts": [mount]}],
        }
        file = job_dir / "cluster.yaml"
        file.write_text(json.dumps({**pools, "pod_template": {"spec": template}}))
        own = ["--command", f"python {program} {job_dir}", "--job-dir", str(job_dir)]
        line = ["--image", "none", "--cluster", str(file), *flags, *(command or own)]
        members = load_cluster(file).members
        return Job(
            cluster=self,
            job_dir=job_dir,
            launcher=self.command(*line),
            replicas={f"{role}-{index}" for role, index in members},
        )

    def command(self, *line):
        """Starts the command with the role of `deploy/kubernetes/role.yaml`."""
        env = {"KUBECONFIG": str(self.plane.kubeconfig("launcher"))}
        return start_python("-m", "components.train", "--backend", "kubernetes", *line, env=env)

    def run(self, *line):
        """Runs the command like `command`; returns its exit code and output."""
        process = self.command(*line)
        out = process.communicate()[0]
        return process.returncode, out


def start(programs, home):
    """Starts a cluster.

    Args:
      programs: Directory of the programs that `run.sh` builds.
      home: Directory for keys, data and logs.
    """
    plane = ControlPlane(programs, home)
    plane.start()
    api = plane.client("admin")
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": "/tmp", "CUDA_VISIBLE_DEVICES": "-1"}
    kubelet = Kubelet(api, home, {**environment, "TRAINER_THREADS": "1"})
    kubelet.start()
    for path in (ROOT / "deploy/kubernetes/role.yaml", ROOT / "tests/kubernetes/binding.yaml"):
        utils.create_from_yaml(api, path)
    return Cluster(
        plane=plane,
        kubelet=kubelet,
        core=client.CoreV1Api(api),
        objects=client.CustomObjectsApi(api),
    )

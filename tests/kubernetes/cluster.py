"""A Kubernetes cluster on this machine, and the jobs that run in it."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import yaml
from kubernetes import client

from components.train.backends.jobset import jobset_name
from tests.kubernetes.control_plane import ControlPlane, wait_for
from tests.kubernetes.kubelet import Kubelet
from tests.root import ROOT

# A program of a user's own: it lives until it is told to end by a file, or by SIGTERM.
_PROGRAM = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
order = os.path.join(sys.argv[1], f"{task['type']}-{task['index']}")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("ready", flush=True)
while not os.path.exists(order): time.sleep(0.05)
with open(order) as file: code = int(file.read())
os.remove(order)
print("ends", flush=True)
sys.exit(code)
"""
SYNC = {"strategy": "multi_worker_mirrored", "chief": {}, "worker": {"replicas": 2}}
PS = {"strategy": "parameter_server", "chief": {}, "worker": {"replicas": 2}, "ps": {}}


@dataclasses.dataclass(kw_only=True)
class Job:
    """A job in the cluster, and the command that follows it."""

    cluster: "Cluster"
    job_dir: pathlib.Path
    launcher: subprocess.Popen | None = None

    @property
    def name(self):
        return jobset_name(str(self.job_dir))

    def wait_for_pods(self, count):
        """Waits until that many programs run."""
        kubelet = self.cluster.kubelet
        wait_for(lambda: len(kubelet.processes(f"{self.name}-")) == count, f"{count} pods")

    def order(self, replica, exit_code):
        """Has the program of a replica such as `worker-1` end; waits until it does."""
        order = self.job_dir / replica
        (self.job_dir / "new").write_text(str(exit_code))
        (self.job_dir / "new").rename(order)
        wait_for(lambda: not order.exists(), f"the end of {replica}")

    def process(self, replica):
        """Returns the process of a replica such as `worker-1`."""
        role, _, index = replica.partition("-")
        (process,) = self.cluster.kubelet.processes(f"{self.name}-{role}-0-{index}-")
        return process

    def end(self):
        """Waits for the end of the command; returns its exit code and output."""
        out = self.launcher.communicate(timeout=300)[0]
        return self.launcher.returncode, out

    def status(self):
        """Returns the JobSet as Kubernetes shows it; None if there is none."""
        try:
            return self.cluster.objects.get_namespaced_custom_object(
                "jobset.x-k8s.io", "v1alpha2", "default", "jobsets", self.name
            )
        except client.ApiException as error:
            assert error.status == 404
            return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster as a test sees it."""

    plane: ControlPlane
    kubelet: Kubelet
    core: client.CoreV1Api
    objects: client.CustomObjectsApi
    rbac: client.RbacAuthorizationV1Api

    def start(self, job_dir, pools, *flags, command=None, **popen):
        """Starts a training of the command, or else of a program that obeys `Job.order`."""
        job_dir.mkdir(exist_ok=True)
        program = job_dir / "program.py"
        program.write_text(_PROGRAM)
        place = {"name": "here", "mountPath": str(job_dir.parent)}
        template = {
            "terminationGracePeriodSeconds": 5,
            "volumes": [{"name": "here", "hostPath": {"path": str(job_dir.parent)}}],
            "containers": [{"name": "trainer", "volumeMounts": [place]}],
        }
        file = job_dir / "cluster.yaml"
        file.write_text(yaml.safe_dump({**pools, "pod_template": {"spec": template}}))
        own = ["--command", f"python {program} {job_dir}", "--job-dir", str(job_dir)]
        line = ["--image", "none", "--cluster", str(file), *flags, *(command or own)]
        return Job(cluster=self, job_dir=job_dir, launcher=self.command(*line, **popen))

    def command(self, *line, **popen):
        """Starts the command with the role of `deploy/kubernetes/role.yaml`."""
        return subprocess.Popen(
            [sys.executable, "-m", "components.train", "--backend", "kubernetes", *line],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**os.environ, "KUBECONFIG": str(self.plane.kubeconfig("launcher"))},
            **popen,
        )


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
    kubelet = Kubelet(api, home, {"PATH": path, "HOME": "/tmp", "CUDA_VISIBLE_DEVICES": "-1"})
    kubelet.start()
    rbac = client.RbacAuthorizationV1Api(api)
    role = yaml.safe_load((ROOT / "deploy/kubernetes/role.yaml").read_text())
    rbac.create_namespaced_role("default", role)
    binding = {
        "metadata": {"name": "training"},
        "roleRef": {"kind": "Role", "name": "training", "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [{"kind": "User", "name": "launcher"}],
    }
    rbac.create_namespaced_role_binding("default", binding)
    return Cluster(
        plane=plane,
        kubelet=kubelet,
        core=client.CoreV1Api(api),
        objects=client.CustomObjectsApi(api),
        rbac=rbac,
    )

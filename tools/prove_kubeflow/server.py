"""Kubeflow Pipelines without its API server and its page, on the control plane of the tests.

A compiled spec becomes a workflow of Argo by the server's own compiler, and the server's driver and
launcher run its steps. Without the API server, no step is cached.
"""

import json
import os
import pathlib
import subprocess
import time
import urllib.request

import yaml
from kubernetes import client, utils

from common.errors import UserError
from tests.kubernetes.control_plane import ControlPlane, wait_for
from tests.programs import start
from tests.root import ROOT
from tools.prove_kubeflow.node import Node

PROGRAMS = ("argoexec", "compile", "driver", "launcher-v2", "workflow-controller")
NAMESPACE = "kubeflow"
_METADATA, _STORE = "127.0.0.1:8080", "127.0.0.1:9000"
_HOSTS = (
    "metadata-grpc-service.kubeflow.svc.cluster.local",
    "seaweedfs.kubeflow",
    "minio-service.kubeflow",
)
# Variables by which clients of Google's find the tests' cloud.
_CLOUD = (
    *("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"),
    *("GCE_METADATA_HOST", "GCE_METADATA_IP", "PYTHONPATH"),
)
_WORKFLOWS = ("argoproj.io", "v1alpha1", NAMESPACE, "workflows")
_ENDED = ("Succeeded", "Failed", "Error")


class Server:
    """Kubeflow Pipelines on a control plane of its own, with a node whose pods are processes.

    Attributes:
      shared: Directory of the claims, by their names.
    """

    def __init__(self, programs, control_plane, python, home):
        """Starts the server, which ends with the namespaces that this program is in.

        Args:
          programs: Directory of PROGRAMS.
          control_plane: Directory of the programs that `tests/kubernetes/run.sh` builds.
          python: Python with ml-metadata, grpcio and moto.
          home: Directory for keys, data and logs.
        """
        self._home, self._programs = home, programs
        plane = ControlPlane(control_plane, home)
        plane.start()
        api = plane.client("admin")
        path = f"{programs}:{ROOT / '.venv/bin'}:{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": "/tmp", "CUDA_VISIBLE_DEVICES": "-1"}
        environment |= {name: os.environ[name] for name in _CLOUD if name in os.environ}
        hosts = list(_HOSTS)
        if "LOOPBACK_CLOUD" in os.environ:  # There the file has one line.
            hosts += pathlib.Path("/etc/hosts").read_text().split()[1:]
        node = Node(api, home, programs, {**environment, "TRAINER_THREADS": "1"}, hosts)
        node.start()
        self.shared = node.shared
        self._objects = client.CustomObjectsApi(api)
        for path in ("tools/prove_kubeflow/namespace.yaml", "deploy/kubernetes/role.yaml"):
            utils.create_from_yaml(api, ROOT / path, namespace=NAMESPACE)
        wait_for(lambda: self._objects.list_namespaced_custom_object(*_WORKFLOWS))
        metadata = ROOT / "tools/prove_kubeflow/metadata_server.py"
        self._start("metadata", python, metadata, _METADATA, home / "metadata.db")
        host, _, port = _STORE.partition(":")
        os.environ["S3_IGNORE_SUBDOMAIN_BUCKETNAME"] = "true"
        self._start("store", python.with_name("moto_server"), "-H", host, "-p", port)
        bucket = urllib.request.Request(f"http://{_STORE}/mlpipeline", method="PUT")
        wait_for(lambda: urllib.request.urlopen(bucket, timeout=5))
        os.environ |= {"LEADER_ELECTION_DISABLE": "true", "DEFAULT_REQUEUE_TIME": "500ms"}
        self._start(
            "workflow-controller",
            programs / "workflow-controller",
            "--namespaced",
            f"--namespace={NAMESPACE}",
            f"--managed-namespace={NAMESPACE}",
            "--executor-image=argoexec",
            f"--kubeconfig={plane.kubeconfig('admin')}",
        )

    def run(self, name, spec, values, limit_s):
        """Runs a compiled spec.

        Args:
          name: Name of the run.
          spec: Path of the spec.
          values: Arguments of the pipeline.
          limit_s: Most seconds that it may take.

        Returns:
          The phase in which the run ended, and those of its steps by their names.

        Raises:
          UserError: If the compiler refuses the spec.
          TimeoutError: If the run has not ended in time.
        """
        pipeline, *platforms = yaml.safe_load_all(spec.read_text())
        job = {"pipelineSpec": pipeline, "runtimeConfig": {"parameterValues": values}}
        files = []
        for file, content in zip(("job.json", "platform.json"), [job, *platforms], strict=False):
            files.append(self._home / file)
            files[-1].write_text(json.dumps(content))
        line = [self._programs / "compile", *files]
        compiled = subprocess.run(line, capture_output=True, text=True, check=False)
        if compiled.returncode:
            raise UserError(f"compile refuses {spec}: {compiled.stderr}")
        workflow = yaml.safe_load(compiled.stdout)
        workflow["metadata"] |= {"name": name, "generateName": ""}
        self._objects.create_namespaced_custom_object(*_WORKFLOWS, workflow)
        steps: dict[str, str] = {}
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            time.sleep(1)
            status = self._objects.get_namespaced_custom_object(*_WORKFLOWS, name).get("status", {})
            for node in status.get("nodes", {}).values():
                step, _, part = node["name"].removesuffix("(0)").rpartition(".")
                step = step.rpartition(".")[2]
                is_step = node["type"] == "Pod" and part == "executor"
                if is_step and node["phase"] in _ENDED and step not in steps:
                    steps[step] = node["phase"]
                    print(f"{name}: {step} {node['phase'].lower()}", flush=True)
            if status.get("phase") in _ENDED:
                return status["phase"], steps
        raise TimeoutError(f"{name} has not ended within {limit_s} s")

    def jobsets(self):
        """Returns the states of all JobSets by their names."""
        kind = ("jobset.x-k8s.io", "v1alpha2", NAMESPACE, "jobsets")
        return {
            jobset["metadata"]["name"]: jobset.get("status", {}).get("terminalState", "")
            for jobset in self._objects.list_namespaced_custom_object(*kind)["items"]
        }

    def _start(self, name, *command):
        with (self._home / f"{name}.log").open("ab") as log:
            start(*command, stdout=log, cwd=self._home)

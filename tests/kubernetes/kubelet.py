"""A node of a Kubernetes cluster, whose containers are processes of this machine.

Each pod has a network of its own and an address, and finds the others by name. The node binds pods,
replaces `$(NAME)`, reports phases and exit codes, serves logs, and ends pods within their grace
period. It has no images, volumes, probes or resources. A pod sees all files of this machine.
"""

import dataclasses
import itertools
import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterable

from kubernetes import client, watch
from urllib3.exceptions import HTTPError

from tests.cloud.front import Answer, Front
from tests.kubernetes.control_plane import wait_for
from tests.kubernetes.expand import expand, field
from tests.root import ROOT

_NODE, _BRIDGE = "node", "kubelet"
# Arguments: hosts file, address, command. It writes a line once it is in its own namespaces, and
# reads one once the device eth0 is there.
_ENTER = """
mount --bind "$0" /etc/hosts && ip link set lo up && echo && read -r _ &&
ip addr add "$1/16" dev eth0 && ip link set eth0 up && shift && exec "$@" < /dev/null
"""


def _now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclasses.dataclass(kw_only=True)
class _Pod:
    """A pod that this node runs."""

    namespace: str
    name: str
    process: subprocess.Popen | None = None
    is_stopping: bool = False
    starting: threading.Lock = dataclasses.field(default_factory=threading.Lock)


class Kubelet:
    """The node."""

    def __init__(
        self,
        api: client.ApiClient,
        home: pathlib.Path,
        environment: dict[str, str],
        hosts: Iterable[str] = (),
    ):
        """Keeps the settings.

        Args:
          api: Client that acts as an administrator.
          home: Directory for logs, with the key and certificate of the control plane.
          environment: Variables that every container has, as if its image set them.
          hosts: Further names of this machine, for pods without a network of their own.
        """
        self._api, self._core, self._home = api, client.CoreV1Api(api), home
        self._environment = environment
        self._pods: dict[str, _Pod] = {}
        self._hosts: dict[str, str] = dict.fromkeys(["localhost", *hosts], "127.0.0.1")
        self._write_hosts()
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    def start(self):
        """Registers the node, and runs pods from now on."""
        for line in (
            f"ip link add {_BRIDGE} type bridge",
            f"ip addr add 10.77.255.254/16 dev {_BRIDGE}",
            f"ip link set {_BRIDGE} up",
        ):
            subprocess.run(line.split(), check=True)
        server = Front(0, self._log, (self._home / "tls.crt", self._home / "tls.key"))
        self._core.create_node({"metadata": {"name": _NODE}})
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": server.server_port}},
        }
        self._core.patch_node_status(_NODE, {"status": status})
        threading.Thread(target=self._watch, daemon=True).start()

    def processes(self, prefix):
        """Returns the processes of the running pods whose names begin so."""
        return [
            pod.process
            for pod in list(self._pods.values())
            if pod.name.startswith(prefix) and pod.process and pod.process.poll() is None
        ]

    def _watch(self):
        while True:
            try:
                for event in watch.Watch().stream(self._core.list_pod_for_all_namespaces):
                    if event["type"] != "DELETED":
                        self._take(self._api.sanitize_for_serialization(event["object"]))
            except (client.ApiException, HTTPError):
                time.sleep(0.2)

    def _take(self, body):
        """Does what a new state of a pod asks for."""
        meta = body["metadata"]
        if "nodeSelector" in body["spec"]:
            return  # This node has no labels.
        pod = self._pods.get(meta["uid"])
        if not pod:
            pod = _Pod(namespace=meta["namespace"], name=meta["name"])
            self._pods[meta["uid"]] = pod
            if "deletionTimestamp" not in meta:
                threading.Thread(target=self._run, args=(pod, body), daemon=True).start()
        if "deletionTimestamp" in meta and not pod.is_stopping:
            pod.is_stopping = True
            grace_s = meta["deletionGracePeriodSeconds"]
            threading.Thread(target=self._end, args=(pod, grace_s), daemon=True).start()

    def _run(self, pod, body):
        """Runs a pod until its program has ended, unless it is to end before it starts."""
        container = body["spec"]["containers"][0]
        with pod.starting:
            if pod.is_stopping:
                return
            address = self._start(pod, body, container)
        self._report(pod, "Running", {container["name"]: {"running": {}}}, address)
        with self._log_of(pod).open("ab", buffering=0) as log:
            for line in pod.process.stdout:
                seconds, nanoseconds = divmod(time.time_ns(), 10**9)
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
                log.write(f"{stamp}.{nanoseconds:09}Z ".encode() + line.rstrip(b"\n") + b"\n")
        code = pod.process.wait()
        code = 128 - code if code < 0 else code
        phase = "Failed" if code else "Succeeded"
        states = {container["name"]: {"terminated": {"exitCode": code}}}
        self._report(pod, phase, states, address)

    def _start(self, pod, body, container):
        """Binds a pod and starts its program; returns its address."""
        self._bind(pod)
        variables = self._variables(body, container)
        command = self._command(body, container, variables)
        with self._lock:
            number = next(self._numbers)
            address = f"10.77.{number // 250}.{number % 250 + 1}"
            self._hosts[f"{body['spec']['hostname']}.{body['spec']['subdomain']}"] = address
            hosts = self._write_hosts()
        pod.process = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", _ENTER, hosts, address, *command],
            env={**self._environment, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
        )
        pod.process.stdout.readline()
        link = f"ip link add eth{number} master {_BRIDGE} up type veth peer name eth0 netns "
        subprocess.run([*link.split(), str(pod.process.pid)], check=True)
        pod.process.stdin.write(b"\n")
        pod.process.stdin.close()
        return address

    def _bind(self, pod):
        target = client.V1ObjectReference(kind="Node", name=_NODE)
        binding = client.V1Binding(metadata={"name": pod.name}, target=target)
        self._core.create_namespaced_binding(pod.namespace, binding, _preload_content=False)

    def _variables(self, body, container):
        """Returns the variables that a pod sets for a container."""
        variables: dict[str, str] = {}
        for variable in container.get("env", ()):
            value = expand(variable.get("value", ""), variables)
            if "valueFrom" in variable:
                value = field(body, variable["valueFrom"]["fieldRef"]["fieldPath"])
            variables[variable["name"]] = value
        return variables

    def _command(self, body, container, variables):
        """Returns the words that start a container."""
        words = [*container["command"], *container.get("args", ())]
        return [expand(word, variables) for word in words]

    def _write_hosts(self):
        hosts = self._home / "hosts"
        # It is written in place, as it is mounted into pods.
        hosts.write_text("".join(f"{ip} {name}\n" for name, ip in self._hosts.items()))
        return hosts

    def _report(self, pod, phase, states, address):
        """Reports a phase of a pod and the states of its containers, by their names."""
        common = {"image": "", "imageID": "", "ready": phase == "Running", "restartCount": 0}
        status = {
            "phase": phase,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": _now(),
            "conditions": [{"type": "Ready", "status": str(phase == "Running")}],
            "containerStatuses": [
                {**common, "name": name, "state": state} for name, state in states.items()
            ],
        }
        self._until_done(self._core.patch_namespaced_pod_status, pod, {"status": status})

    def _end(self, pod, grace_s):
        """Asks the program to end, kills it after the grace period, and removes the pod."""
        with pod.starting:
            process = pod.process
        if process:
            process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            process.kill()
            process.wait()
            time.sleep(0.3)  # Its last state is reported meanwhile.
        delete = self._core.delete_namespaced_pod
        self._until_done(delete, pod, {"gracePeriodSeconds": 0})

    def _until_done(self, call, pod, body):
        def attempt():
            try:
                return call(pod.name, pod.namespace, body=body, _preload_content=False)
            except client.ApiException as error:
                if error.status == 404:  # It has gone.
                    return True
                raise

        wait_for(attempt, pod.name)

    def _log_of(self, pod):
        return self._home / f"{pod.namespace}_{pod.name}.log"

    def _log(self, request):
        """Answers with the log of a pod, which is sent while the pod runs if that is asked for."""
        _, _, namespace, name, _ = request.path.split("/")
        return Answer(200, self._lines(_Pod(namespace=namespace, name=name), request.query))

    def _lines(self, pod, query):
        with self._log_of(pod).open("rb") as log:
            is_last = False
            while not is_last:
                is_last = "follow" not in query or not self.processes(pod.name)
                for line in log:
                    yield line if "timestamps" in query else line.partition(b" ")[2]
                time.sleep(0.1)

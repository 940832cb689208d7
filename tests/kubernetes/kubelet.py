"""A node of a Kubernetes cluster, whose containers are processes of this machine.

Each pod has a network of its own and an address, and finds the others by name. The node binds pods,
replaces `$(NAME)`, reports phases and exit codes, serves logs, and ends pods within their grace
period. It has no images, volumes, probes or resources. A pod sees all files of this machine.
"""

import contextlib
import dataclasses
import itertools
import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterable
from concurrent import futures

from kubernetes import client, watch
from urllib3.exceptions import HTTPError

from tests.cloud.front import Answer, Front
from tests.kubernetes.control_plane import wait_for
from tests.kubernetes.expand import expand, field
from tests.programs import run
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
    """A pod that this node runs; its processes are those of its containers."""

    namespace: str
    name: str
    processes: list[subprocess.Popen] = dataclasses.field(default_factory=list)
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
            run(*line.split())
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
            process
            for pod in list(self._pods.values())
            for process in pod.processes
            if pod.name.startswith(prefix) and process.poll() is None
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
        """Runs a pod until its programs have ended, unless it is to end before they start."""
        spec = body["spec"]
        with pod.starting:
            if pod.is_stopping:
                return
            self._bind(pod)
            address = self._address(spec)
            for container in spec.get("initContainers", ()):
                if code := self._follow(body, container, self._launch(body, container, address)):
                    self._report(pod, {container["name"]: code}, address)
                    return
            containers = spec["containers"]
            pod.processes = [self._launch(body, each, address) for each in containers]
        names = [container["name"] for container in containers]
        self._report(pod, dict.fromkeys(names), address)
        with futures.ThreadPoolExecutor() as pool:
            bodies = itertools.repeat(body)
            codes = [*pool.map(self._follow, bodies, containers, pod.processes)]
        self._report(pod, dict(zip(names, codes, strict=True)), address)

    def _address(self, spec):
        """Returns the address of a pod: a new one that others find by its name, if it has one."""
        if "subdomain" not in spec:
            return "127.0.0.1"
        with self._lock:
            number = next(self._numbers)
            address = f"10.77.{number // 250}.{number % 250 + 1}"
            self._hosts[f"{spec['hostname']}.{spec['subdomain']}"] = address
            self._write_hosts()
        return address

    def _launch(self, body, container, address):
        """Starts a container, in a network of its own if it has an address; returns the process."""
        variables = self._variables(body, container)
        enter = ["unshare", "--mount"]
        is_apart = address != "127.0.0.1"
        if is_apart:
            enter += ["--net", "sh", "-c", _ENTER, self._home / "hosts", address]
        process = subprocess.Popen(
            [*enter, *self._command(body, container, variables)],
            env={**self._environment, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
        )
        if is_apart:
            process.stdout.readline()
            link = f"ip link add eth{address[6:]} master {_BRIDGE} up type veth peer name eth0"
            run(*link.split(), "netns", process.pid)
            process.stdin.write(b"\n")
        process.stdin.close()
        return process

    def _follow(self, body, container, process):
        """Writes what a container prints to its log, with times; returns its exit code."""
        with self._log_of(body["metadata"], container["name"]).open("ab", buffering=0) as log:
            for line in process.stdout:
                seconds, nanoseconds = divmod(time.time_ns(), 10**9)
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
                log.write(f"{stamp}.{nanoseconds:09}Z ".encode() + line.rstrip(b"\n") + b"\n")
        code = process.wait()
        return 128 - code if code < 0 else code

    def _bind(self, pod):
        target = client.V1ObjectReference(kind="Node", name=_NODE)
        binding = client.V1Binding(metadata={"name": pod.name}, target=target)
        self._core.create_namespaced_binding(pod.namespace, binding, _preload_content=False)

    def _variables(self, body, container):
        """Returns the variables that a pod sets for a container."""
        variables: dict[str, str] = {"HOSTNAME": body["metadata"]["name"]}
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
        # It is written in place, as it is mounted into pods.
        lines = [f"{ip} {name}\n" for name, ip in self._hosts.items()]
        (self._home / "hosts").write_text("".join(lines))

    def _report(self, pod, codes, address):
        """Reports the exit codes of a pod's containers, by their names; of one that runs, None."""
        is_running = None in codes.values()
        phase = "Running" if is_running else "Failed" if any(codes.values()) else "Succeeded"
        states = {
            name: {"running": {}} if code is None else {"terminated": {"exitCode": code}}
            for name, code in codes.items()
        }
        common = {"image": "", "imageID": "", "ready": is_running, "restartCount": 0}
        status = {
            "phase": phase,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": _now(),
            "conditions": [{"type": "Ready", "status": str(is_running)}],
            "containerStatuses": [
                {**common, "name": name, "state": state} for name, state in states.items()
            ],
        }
        self._until_done(self._core.patch_namespaced_pod_status, pod, {"status": status})

    def _end(self, pod, grace_s):
        """Asks the program to end, kills it after the grace period, and removes the pod."""
        with pod.starting:
            for process in pod.processes:
                process.send_signal(signal.SIGTERM)
        for process in pod.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
            process.kill()
            process.wait()
        if pod.processes:
            time.sleep(0.3)  # Their last states are reported meanwhile.
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

        wait_for(attempt)

    def _log_of(self, meta, container):
        return self._home / f"{meta['namespace']}_{meta['name']}_{container}.log"

    def _log(self, request):
        """Answers with the log of a pod, which is sent while the pod runs if that is asked for."""
        _, _, namespace, name, container = request.path.split("/")
        path = self._log_of({"namespace": namespace, "name": name}, container)
        return Answer(200, self._lines(path, name, request.query))

    def _lines(self, path, name, query):
        with path.open("rb") as log:
            is_last = False
            while not is_last:
                is_last = "follow" not in query or not self.processes(name)
                for line in log:
                    yield line if "timestamps" in query else line.partition(b" ")[2]
                time.sleep(0.1)

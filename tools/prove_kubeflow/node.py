"""The node of the tests, which runs the pods of Argo's workflows as well.

These have several containers, a service account and variables of it, but no address of their own.
Every container has a root of its own: the directories of this machine but for /tmp and /run, and
the volumes of its pod. Of those there are claims and empty directories.
"""

import shutil
import subprocess
import time

from tests.kubernetes.kubelet import Kubelet
from tests.root import ROOT

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_API = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "16443"}
# Arguments: the root, directories that it shows although they may be in /tmp, `--`, sources and
# targets of mounts, `--`, command. No mount shows outside, as each container has its own.
_ENTER = """
mount -t tmpfs none "$0" && mount --make-unbindable "$0"
for path in /*; do
    if [ -L "$path" ]; then cp -P "$path" "$0"
    elif [ -d "$path" ] && [ "$path" != /tmp ] && [ "$path" != /run ]; then
        mkdir "$0$path" && mount --rbind "$path" "$0$path"
    fi
done
mkdir -m 1777 "$0/tmp" && mkdir "$0/run"
while [ "$1" != -- ]; do
    mkdir -p "$0$1" && mount --rbind "$1" "$0$1" && shift
done
shift && exec chroot "$0" sh -ec '
while [ "$1" != -- ]; do
    [ -e "$2" ] || mkdir -p "$2"
    mount --bind "$1" "$2" && shift 2
done
shift && exec "$@"' sh "$@"
"""


class Node(Kubelet):
    """The node.

    Attributes:
      shared: Directory of the claims, by their names.
    """

    def __init__(self, api, home, programs, environment, hosts):
        """Keeps the settings of a `Kubelet`, and the directory of programs that pods may start."""
        super().__init__(api, home, {**environment, **_API}, hosts)
        self.shared = home / "claims"
        self._programs = programs
        (home / "root").mkdir()

    def _run(self, pod, body):
        if "subdomain" in body["spec"]:
            super()._run(pod, body)
            return
        self._run_containers(pod, body)
        # Each pod has copies of Argo's and the launcher's programs.
        shutil.rmtree(self._home / "pods" / body["metadata"]["uid"], ignore_errors=True)

    def _run_containers(self, pod, body):
        self._bind(pod)
        spec = body["spec"]
        for container in spec.get("initContainers", ()):
            if code := self._launch(body, container).wait():
                states = {container["name"]: {"terminated": {"exitCode": code}}}
                self._report(pod, "Failed", states, "127.0.0.1")
                return
        running = {each["name"]: self._launch(body, each) for each in spec["containers"]}
        states = {name: {"running": {}} for name in running}
        self._report(pod, "Running", states, "127.0.0.1")
        failed = False
        while running:
            time.sleep(0.1)
            for name, process in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    code = process.returncode
                    failed = failed or code != 0
                    code = 128 - code if code < 0 else code
                    states[name] = {"terminated": {"exitCode": code}}
                    phase = "Running" if running else "Failed" if failed else "Succeeded"
                    self._report(pod, phase, states, "127.0.0.1")

    def _launch(self, body, container):
        variables = self._variables(body, container)
        meta = body["metadata"]
        # Such as `promoted.root.steps.convert.executor`.
        node = meta["annotations"]["workflows.argoproj.io/node-name"]
        folder = self._home / "logs" / node.partition(".")[0]
        folder.mkdir(parents=True, exist_ok=True)
        kind = "" if container["name"] == "main" else f"-{container['name']}"
        with (folder / f"{node}{kind}.log").open("ab") as log:
            return subprocess.Popen(
                ["unshare", "--mount", *self._command(body, container, variables)],
                env={**self._environment, **variables, "HOSTNAME": meta["name"]},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )

    def _command(self, body, container, variables):
        words = super()._command(body, container, variables)
        spec = body["spec"]
        volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
        mounts = [(self._home / "hosts", "/etc/hosts")]
        if account := spec.get("serviceAccountName"):
            mounts.append((self._account(body["metadata"], account), _ACCOUNT))
        for mount in sorted(container.get("volumeMounts", ()), key=lambda each: each["mountPath"]):
            source = self._directory(body["metadata"]["uid"], volumes[mount["name"]])
            source = source / mount.get("subPath", "")
            source.mkdir(parents=True, exist_ok=True)
            mounts.append((source, mount["mountPath"]))
        pairs = [str(place) for mount in mounts for place in mount]
        root = str(self._home / "root")
        seen = [str(ROOT), str(self._programs)]
        return ["sh", "-ec", _ENTER, root, *seen, "--", *pairs, "--", *words]

    def _directory(self, uid, volume):
        """Returns the directory of a volume of a pod."""
        if claim := volume.get("persistentVolumeClaim"):
            return self.shared / claim["claimName"]
        if "emptyDir" not in volume:
            raise ValueError(f"this node has no such volume: {volume}")
        return self._home / "pods" / uid / volume["name"]

    def _account(self, meta, account):
        """Returns a directory with a token of a service account, as pods have it."""
        folder = self._home / "pods" / meta["uid"] / "account"
        if not folder.exists():
            folder.mkdir(parents=True)
            token = self._core.create_namespaced_service_account_token(
                account, meta["namespace"], {"spec": {"expirationSeconds": 7200}}
            )
            (folder / "token").write_text(token.status.token)
            (folder / "namespace").write_text(meta["namespace"])
            (folder / "ca.crt").write_bytes((self._home / "tls.crt").read_bytes())
        return folder

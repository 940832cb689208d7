"""The node of the tests, which runs the pods of Argo's workflows as well.

These have several containers, a service account and variables of it, but no address of their own.
Every container has a root of its own: the directories of this machine but for /tmp and /run, and
the volumes of its pod. Of those there are claims and empty directories.
"""

import shutil

from tests.kubernetes.kubelet import Kubelet
from tests.root import ROOT

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "16443"}
_ENVIRONMENT["HIDDEN"] = "/tmp /run"
_ENTER = ROOT / "tests/enter_root.sh"


class Node(Kubelet):
    """The node.

    Attributes:
      shared: Directory of the claims, by their names.
    """

    def __init__(self, api, home, programs, environment, hosts):
        """Keeps the settings of a `Kubelet`, and the directory of programs that pods may start."""
        super().__init__(api, home, {**environment, **_ENVIRONMENT}, hosts)
        self.shared = home / "claims"
        self._programs = programs
        for name in ("root", "logs"):
            (home / name).mkdir()

    def _run(self, pod, body):
        super()._run(pod, body)
        # Each pod of Argo's has copies of Argo's and the launcher's programs.
        shutil.rmtree(self._home / "pods" / body["metadata"]["uid"], ignore_errors=True)

    def _log_of(self, meta, container):
        # Such as `promoted.root.steps.convert.executor`.
        if node := meta.get("annotations", {}).get("workflows.argoproj.io/node-name"):
            return self._home / "logs" / f"{node}-{container}.log"
        return super()._log_of(meta, container)

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
        pairs = [place for mount in mounts for place in mount]
        seen = [self._home / "root", ROOT, self._programs]
        return ["sh", _ENTER, *seen, "--", *pairs, "--", *words]

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

"""A Kubernetes control plane on this machine: etcd, API server, controllers, and that of JobSet.

    plane = ControlPlane(programs, home)
    plane.start()                      # takes some five seconds
    plane.client("admin")              # an API client

It runs in namespaces of its own (`run.sh`), and ends with them.
"""

import base64
import functools
import pathlib
import subprocess

import yaml
from kubernetes import client, config, utils
from urllib3.exceptions import HTTPError

from tests.certificates import make_certificate
from tests.programs import start, wait_until

_API, _ETCD, _ETCD_PEERS, _WEBHOOKS, _CONTROLLERS, _HEALTH = range(16443, 16449)
_STARTED = (
    "job-controller,garbage-collector-controller,namespace-controller,serviceaccount-controller,"
    "disruption-controller,endpointslice-controller,ttl-after-finished-controller,"
    "resourcequota-controller"
)
USERS = {"admin": "system:masters", "launcher": "launchers"}  # Users, and their groups.


wait_for = functools.partial(
    wait_until, limit_s=60.0, poll_s=0.1, passing=(client.ApiException, HTTPError, OSError)
)


class ControlPlane:
    """The processes, and clients of their API."""

    def __init__(self, programs: pathlib.Path, home: pathlib.Path):
        """Keeps the directories of the programs, and of keys, data and logs."""
        self.home, self._programs = home, programs
        self._processes: dict[str, subprocess.Popen] = {}

    def start(self):
        """Starts everything, and waits until JobSets are served."""
        names = ("DNS:localhost", "IP:127.0.0.1")
        make_certificate(self.home / "tls.crt", self.home / "tls.key", names)
        (self.home / "tokens.csv").write_text(
            "".join(f"{user},{user},{user},{group}\n" for user, group in USERS.items())
        )
        self._start(
            "etcd",
            data_dir="etcd",
            listen_client_urls=f"http://127.0.0.1:{_ETCD}",
            advertise_client_urls=f"http://127.0.0.1:{_ETCD}",
            listen_peer_urls=f"http://127.0.0.1:{_ETCD_PEERS}",
            unsafe_no_fsync="true",
            log_level="error",
        )
        self.start_api_server()
        self._start(
            "kube-controller-manager",
            kubeconfig=self.kubeconfig("admin"),
            controllers=_STARTED,
            leader_elect="false",
            secure_port=_CONTROLLERS,
            service_account_private_key_file="tls.key",
        )
        self._start_jobset()

    def start_api_server(self):
        """Starts the API server, and waits until it answers."""
        self._start(
            "kube-apiserver",
            etcd_servers=f"http://127.0.0.1:{_ETCD}",
            secure_port=_API,
            bind_address="127.0.0.1",
            advertise_address="10.77.255.254",
            tls_cert_file="tls.crt",
            tls_private_key_file="tls.key",
            token_auth_file="tokens.csv",
            authorization_mode="RBAC",
            anonymous_auth="false",
            # A pod may run without a service account's token, which no program here uses.
            disable_admission_plugins="ServiceAccount",
            service_account_key_file="tls.key",
            service_account_signing_key_file="tls.key",
            service_account_issuer="https://here",
            service_cluster_ip_range="10.0.0.0/24",
            endpoint_reconciler_type="none",
            kubelet_preferred_address_types="InternalIP",
        )
        core = client.CoreV1Api(self.client("admin"))
        wait_for(lambda: core.read_namespace("default"))

    def stop_api_server(self):
        """Kills the API server."""
        self._processes["kube-apiserver"].kill()
        self._processes["kube-apiserver"].wait()

    def kubeconfig(self, user):
        """Returns the path of a file by which clients act as a user."""
        path = self.home / f"{user}.yaml"
        cluster = {"server": f"https://127.0.0.1:{_API}", "certificate-authority": "tls.crt"}
        settings = {
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": user}}],
            "contexts": [{"name": user, "context": {"cluster": "here", "user": user}}],
            "current-context": user,
        }
        path.write_text(yaml.safe_dump(settings))
        return path

    def client(self, user):
        """Returns an API client that acts as a user."""
        return config.new_client_from_config(str(self.kubeconfig(user)))

    def _start(self, program, **flags):
        line = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        with (self.home / f"{program}.log").open("ab") as log:
            command = [self._programs / program, *line]
            self._processes[program] = start(*command, stdout=log, cwd=self.home)

    def _start_jobset(self):
        """Makes the kind known, has its webhooks called without a service, starts its program."""
        api = self.client("admin")
        utils.create_from_yaml(api, self._programs / "jobset.x-k8s.io_jobsets.yaml")
        authority = base64.b64encode((self.home / "tls.crt").read_bytes()).decode()
        for kind in yaml.safe_load_all((self._programs / "manifests.yaml").read_text()):
            for hook in kind["webhooks"]:
                path = hook["clientConfig"]["service"]["path"]
                url = f"https://127.0.0.1:{_WEBHOOKS}{path}"
                hook["clientConfig"] = {"url": url, "caBundle": authority}
                if "pod" in path:  # As in the released manifests.
                    mark = {"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}
                    hook["objectSelector"] = {"matchExpressions": [mark]}
            utils.create_from_dict(api, kind)
        settings = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"port": _WEBHOOKS, "host": "127.0.0.1", "certDir": str(self.home)},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{_HEALTH}"},
            "metrics": {"bindAddress": "0"},
        }
        (self.home / "jobset.yaml").write_text(yaml.safe_dump(settings))
        objects, kind = client.CustomObjectsApi(api), ("jobset.x-k8s.io", "v1alpha2")
        wait_for(lambda: objects.list_cluster_custom_object(*kind, "jobsets"))
        self._start("jobset", config="jobset.yaml", kubeconfig=self.kubeconfig("admin"))
        body = {
            "apiVersion": "/".join(kind),
            "kind": "JobSet",
            "metadata": {"name": "probe"},
            "spec": {"replicatedJobs": []},
        }
        create = objects.create_namespaced_custom_object
        where = (*kind, "default", "jobsets")
        wait_for(lambda: create(*where, body, dry_run="All"))

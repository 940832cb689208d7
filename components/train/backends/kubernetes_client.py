"""Client of Kubernetes for one JobSet, its pods, and the logs of these.

    jobset = JobSetClient(None, name)
    jobset.create(manifest)
    for pod in jobset.changes(): ...  # Repeat it; `jobset.pods` has all pods.

The clients of `kubernetes` take half a second to import, so they are imported when they are needed.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from common.errors import UserError, first_line
from components.train.backends.jobset import CONTAINER
from components.train.supervision.restart_policy import KILLED

_KIND = {"group": "jobset.x-k8s.io", "version": "v1alpha2", "plural": "jobsets"}
_LIMIT = {"_request_timeout": 30}
# Labels of a pod with its role, index and attempt.
_LABELS = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "batch.kubernetes.io/job-completion-index",
    "jobset.sigs.k8s.io/restart-attempt",
)
# Further texts of errors by HTTP status.
_REPAIRS = {
    401: "; log in again",
    403: "; ask for the Role of deploy/kubernetes/role.yaml",
    404: "; docs/KUBERNETES.md says what a cluster needs",
}


class RefusedError(UserError):
    """Refusal of a request by Kubernetes, which would refuse it again."""


class ConflictError(RefusedError):
    """Refusal of a name that another object has."""


class MissingError(RefusedError):
    """Refusal of a request about an object that does not exist."""


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turns errors of the Kubernetes client in a `with` block into those of this program.

    Raises:
      MissingError: If there is no such object.
      ConflictError: If there is an object with this name already.
      RefusedError: If Kubernetes refuses the request for another reason. For lack of a permission,
        the message names verb and resource.
      ConnectionError: If the API server does not answer, or says that it cannot do so now.
    """
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as error:
        text = error.body or error.reason
        kind = RefusedError
        # The answer is no JSON if Kubernetes does not know this kind of object.
        with contextlib.suppress(ValueError, TypeError, KeyError):
            text = json.loads(text)["message"]
            kind = {404: MissingError, 409: ConflictError}.get(error.status, RefusedError)
        text = f"Kubernetes: {' '.join(str(text).split())}"
        # 410: the changes since then are forgotten.
        if not error.status or error.status in (410, 429) or error.status >= 500:
            raise ConnectionError(text) from None
        raise kind(text + _REPAIRS.get(error.status, "")) from None
    except (HTTPError, OSError) as error:
        raise ConnectionError(f"Kubernetes does not answer: {first_line(error)}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pod:
    """State of a pod.

    Attributes:
      name: Name of the pod, which no later one has.
      role: Role of the replica.
      replica: Name of the replica, such as `worker/1`.
      attempt: Number of restarts of all replicas before it, as a text.
      state: State of its program in words: why it waits, running, or ended with its exit code.
      exit_code: Exit code of its program; None before it has ended.
      is_stopped: Whether Kubernetes asked the program to end before it did.
      is_gone: Whether the pod has been removed.
    """

    name: str
    role: str
    replica: str
    attempt: str
    state: str
    exit_code: int | None
    is_stopped: bool
    is_gone: bool

    @property
    def is_started(self) -> bool:
        """True if its program runs, or has run."""
        return self.exit_code is not None or self.state == "running"

    @property
    def is_over(self) -> bool:
        """True if its program has ended, or the pod has been removed."""
        return self.is_gone or self.exit_code is not None


class JobSetClient:
    """A JobSet of a namespace, which may not exist, and its pods.

    Every method raises a RefusedError or ConnectionError as `refusals` does.

    Attributes:
      name: Name of the JobSet.
      pods: Pods by name, also those that are gone; those that have ended are in the order of their
        ends.
    """

    def __init__(self, namespace: str | None, name: str) -> None:
        """Reads the credentials: of the kubeconfig file, else of the pod in which this runs.

        The environment variable KUBECONFIG may name the file. Sends no request.

        Args:
          namespace: Namespace; None for that of the kubeconfig file, else `default`, or of the pod.
          name: Name of the JobSet.

        Raises:
          UserError: If there are no credentials.
        """
        from kubernetes import client, config

        path = os.environ.get("KUBECONFIG")
        token = pathlib.Path(config.incluster_config.SERVICE_TOKEN_FILENAME)
        try:
            config.load_kube_config(path)
            context = config.list_kube_config_contexts(path)[1]["context"]
            default = context.get("namespace", "default")
        except config.ConfigException as error:
            if not token.exists():
                raise UserError(
                    f"no access to a Kubernetes cluster ({first_line(error)}); set KUBECONFIG to a "
                    "file with which kubectl works"
                ) from None
            config.load_incluster_config()
            default = token.with_name("namespace").read_text(encoding="utf-8")
        self.name = name
        self.pods: dict[str, Pod] = {}
        self._namespace = namespace or default
        self._core = client.CoreV1Api()
        self._objects = client.CustomObjectsApi()
        self._since = ""

    def create(self, manifest: Mapping[str, Any]) -> None:
        """Creates the JobSet, or raises a ConflictError if there is one with its name.

        Forgets all pods, so that the next `changes` yields every pod that exists.
        """
        self.pods.clear()
        self._since = ""
        # Not strictly, unknown fields would be dropped silently.
        self._call("create", body=manifest, field_validation="Strict")

    def get(self) -> dict[str, Any] | None:
        """Returns the JobSet in its present state, or None if there is none."""
        with contextlib.suppress(MissingError):
            return self._call("get", name=self.name)
        return None

    def delete(self) -> None:
        """Asks to delete the JobSet, if there is one; it exists until its last pod has gone."""
        with contextlib.suppress(MissingError):
            self._call("delete", name=self.name, propagation_policy="Foreground")

    def changes(self) -> Iterator[Pod]:
        """Yields all pods or, from the second call on, those that change within a second or two.

        Keeps their states in `pods`, so it has to be iterated to the end. After a ConnectionError,
        the next call yields all pods that exist again.
        """
        from kubernetes.watch import Watch

        pods = self._core.list_namespaced_pod
        which = {"label_selector": f"jobset.sigs.k8s.io/jobset-name={self.name}", **_LIMIT}
        try:
            with refusals():
                if self._since:
                    for event in Watch().stream(
                        pods,
                        self._namespace,
                        resource_version=self._since,
                        timeout_seconds=1,
                        **which,
                    ):
                        self._since = event["object"].metadata.resource_version
                        yield self._note(event["object"], is_gone=event["type"] == "DELETED")
                else:
                    answer = pods(self._namespace, **which)
                    for name in self.pods.keys() - {pod.metadata.name for pod in answer.items}:
                        self.pods[name] = dataclasses.replace(self.pods[name], is_gone=True)
                    for pod in answer.items:
                        yield self._note(pod, is_gone=False)
                    self._since = answer.metadata.resource_version
        except ConnectionError:
            self._since = ""
            raise

    @property
    def is_any_killed(self) -> bool:
        """True if a pod that was asked to end had to be killed (exit code 137)."""
        return any(pod.is_stopped and pod.exit_code == KILLED for pod in self.pods.values())

    def log(self, pod: Pod, *, follow: bool = False) -> Iterator[tuple[str, str]]:
        """Yields the lines of a pod's log.

        Args:
          pod: The pod.
          follow: Waits for further lines until the program ends.

        Yields:
          Time, as a text of constant length, and text of the line without its end.
        """
        with refusals():
            # Without a limit, since the program may be silent.
            for line in self._core.read_namespaced_pod_log(
                pod.name,
                self._namespace,
                container=CONTAINER,
                timestamps=True,
                follow=follow,
                _preload_content=False,
            ):
                time, _, text = line.decode("utf-8", "replace").rstrip("\r\n").partition(" ")
                yield time, text

    def _call(self, verb: str, **arguments: Any) -> Any:
        call = getattr(self._objects, f"{verb}_namespaced_custom_object")
        with refusals():
            return call(**_KIND, **_LIMIT, namespace=self._namespace, **arguments)

    def _note(self, pod: Any, *, is_gone: bool) -> Pod:
        """Keeps the state of a pod, and returns it; once ended, only `is_gone` changes.

        Args:
          pod: The `V1Pod`.
          is_gone: Whether it has been removed.
        """
        meta = pod.metadata
        before = self.pods.get(meta.name)
        if before and before.exit_code is not None:
            self.pods[meta.name] = dataclasses.replace(before, is_gone=is_gone)
            return self.pods[meta.name]
        self.pods.pop(meta.name, None)  # Those that end are put behind those that have ended.
        role, index, attempt = (meta.labels[label] for label in _LABELS)
        text = "waits for a node"
        exit_code = None
        statuses = pod.status.container_statuses or ()
        for state in (each.state for each in statuses if each.name == CONTAINER):
            if state.terminated:
                exit_code = state.terminated.exit_code
                text = f"ended: exit code {exit_code}"
            else:
                text = f"waits: {state.waiting.reason}" if state.waiting else "running"
        self.pods[meta.name] = Pod(
            name=meta.name,
            role=role,
            replica=f"{role}/{index}",
            attempt=attempt,
            state=text,
            exit_code=exit_code,
            is_stopped=bool(meta.deletion_timestamp),
            is_gone=is_gone,
        )
        return self.pods[meta.name]

"""Client of Kubernetes for the JobSets of a namespace, their pods, and the logs of these.

    jobsets = JobSets(namespace=None)
    jobsets.create(manifest)
    pods = Pods(jobsets, name)
    for pod in pods.changes(): ...  # Repeat it; `pods.known` has all pods.

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
    """Refusal since there is no such object."""


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Context manager that turns errors of the Kubernetes client into those of this program.

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


class JobSets:
    """The JobSets of a namespace.

    Every method raises a RefusedError or ConnectionError as `refusals` does.
    """

    def __init__(self, namespace: str | None) -> None:
        """Reads the credentials: those of the kubeconfig file, else those of the pod around this.

        Args:
          namespace: Namespace; None for that of the kubeconfig file or the pod, else `default`.

        Raises:
          UserError: If there are no credentials.
        """
        from kubernetes import client, config

        context: Mapping[str, str] = {}
        try:
            try:
                path = os.environ.get("KUBECONFIG")
                config.load_kube_config(path)
                context = config.list_kube_config_contexts(path)[1]["context"]
            except config.ConfigException:
                config.load_incluster_config()
                token = pathlib.Path(config.incluster_config.SERVICE_TOKEN_FILENAME)
                context = {"namespace": token.with_name("namespace").read_text(encoding="utf-8")}
        except config.ConfigException as error:
            raise UserError(
                f"no access to a Kubernetes cluster ({first_line(error)}); set KUBECONFIG to a "
                "file with which kubectl works"
            ) from None
        self.namespace = namespace or context.get("namespace", "default")
        self.core = client.CoreV1Api()
        self._objects = client.CustomObjectsApi()

    def create(self, manifest: Mapping[str, Any]) -> None:
        """Creates a JobSet, or raises a ConflictError if there is one with its name."""
        # Not strictly, unknown fields would be dropped silently.
        self._call("create", body=manifest, field_validation="Strict")

    def get(self, name: str) -> dict[str, Any] | None:
        """Returns a JobSet in its present state, or None if there is none with this name."""
        with contextlib.suppress(MissingError):
            return self._call("get", name=name)
        return None

    def delete(self, name: str) -> None:
        """Has a JobSet end, if there is one; it exists until its last pod has gone."""
        with contextlib.suppress(MissingError):
            self._call("delete", name=name, propagation_policy="Foreground")

    def warnings(self, name: str) -> list[str]:
        """Returns the warnings of Kubernetes about a JobSet and its parts."""
        with refusals():
            events = self.core.list_namespaced_event(
                self.namespace, field_selector="type=Warning", **_LIMIT
            )
        return [
            f"{event.involved_object.name}: {event.reason}: {event.message}"
            for event in events.items
            if event.involved_object.name.startswith(name)
        ]

    def _call(self, verb: str, **arguments: Any) -> Any:
        call = getattr(self._objects, f"{verb}_namespaced_custom_object")
        with refusals():
            return call(**_KIND, **_LIMIT, namespace=self.namespace, **arguments)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pod:
    """State of a pod.

    Attributes:
      uid: Id of the pod.
      name: Name of the pod.
      role: Role of the replica.
      index: Index of the replica within its role, as text.
      attempt: Number of times that all replicas had started again before, as text.
      is_started: Whether its program has started, so that there is a log.
      exit_code: Exit code of its program; None before it has ended.
      is_stopped: Whether Kubernetes asked the program to end before it did.
      is_gone: Whether the pod has been removed.
    """

    uid: str
    name: str
    role: str
    index: str
    attempt: str
    is_started: bool
    exit_code: int | None
    is_stopped: bool
    is_gone: bool

    @property
    def replica(self) -> str:
        """Name of the replica, such as `worker/1`."""
        return f"{self.role}/{self.index}"

    @property
    def is_over(self) -> bool:
        """Whether its program has ended, or will never start."""
        return self.is_gone or self.exit_code is not None

    @property
    def progress(self) -> str:
        """State of its program in words: waiting, running, or ended with its exit code."""
        if self.exit_code is not None:
            return f"ended: exit code {self.exit_code}"
        return "running" if self.is_started else "waiting"


class Pods:
    """The pods of a JobSet.

    Attributes:
      known: Pods by id, also those that are gone; those that have ended in the order of their ends.
    """

    def __init__(self, jobsets: JobSets, name: str) -> None:
        self.known: dict[str, Pod] = {}
        self._core = jobsets.core
        self._namespace = jobsets.namespace
        self._since = ""
        self._selector = f"jobset.sigs.k8s.io/jobset-name={name}"

    def changes(self) -> Iterator[Pod]:
        """Yields all pods or, from the second call on, those that change within a second or two.

        Raises:
          RefusedError: If Kubernetes refuses a request.
          ConnectionError: If the API server does not answer; the next call yields all pods again.
        """
        from kubernetes.watch import Watch

        pods = self._core.list_namespaced_pod
        since = self._since
        which = {"namespace": self._namespace, "label_selector": self._selector, **_LIMIT}
        try:
            with refusals():
                if since:
                    which |= {"resource_version": since, "timeout_seconds": 1}
                    for event in Watch().stream(pods, **which):
                        since = event["object"].metadata.resource_version
                        yield self._note(event["object"], is_gone=event["type"] == "DELETED")
                else:
                    answer = pods(**which)
                    for uid in self.known.keys() - {pod.metadata.uid for pod in answer.items}:
                        self.known[uid] = dataclasses.replace(self.known[uid], is_gone=True)
                    for pod in answer.items:
                        yield self._note(pod, is_gone=False)
                    since = answer.metadata.resource_version
        except ConnectionError:
            since = ""
            raise
        finally:
            self._since = since

    def log(self, pod: Pod, *, follow: bool = False) -> Iterator[tuple[str, str]]:
        """Yields the lines of a pod's log.

        Args:
          pod: The pod.
          follow: Waits for further lines until the program ends.

        Yields:
          Time, as a text of constant length, and text of the line without its end.

        Raises:
          RefusedError: If Kubernetes refuses the request.
          ConnectionError: If the API server does not answer, or ends the answer early.
        """
        how = {"container": CONTAINER, "timestamps": True, "follow": follow}
        with refusals():
            read = self._core.read_namespaced_pod_log
            # Without a limit, since the program may be silent.
            for line in read(pod.name, self._namespace, **how, _preload_content=False):
                time, _, text = line.decode("utf-8", "replace").rstrip("\r\n").partition(" ")
                yield time, text

    def _note(self, pod: Any, *, is_gone: bool) -> Pod:
        meta = pod.metadata
        statuses = pod.status.container_statuses or ()
        state = next((each.state for each in statuses if each.name == CONTAINER), None)
        ended = state and state.terminated
        before = self.known.get(meta.uid)
        has_ended_before = bool(before and before.is_over)
        role, index, attempt = (meta.labels[label] for label in _LABELS)
        new = Pod(
            uid=meta.uid,
            name=meta.name,
            role=role,
            index=index,
            attempt=attempt,
            is_started=bool(ended or (state and state.running)),
            exit_code=ended.exit_code if ended else None,
            is_stopped=before.is_stopped
            if before and has_ended_before
            else bool(meta.deletion_timestamp),
            is_gone=is_gone,
        )
        others = self.known
        if ended and not has_ended_before:
            others = {uid: each for uid, each in self.known.items() if uid != new.uid}
        self.known = {**others, new.uid: new}  # Other threads read it.
        return new

"""The kubernetes back end: training as a JobSet of a Kubernetes cluster.

`jobset` makes the manifest, by which Kubernetes itself restarts the replicas. The launcher submits
it, shows what happens, and ends the job at the limits that a JobSet cannot have.
"""

import contextlib
import dataclasses
import functools
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from common.cli import Flags, flag
from common.errors import UserError, reading
from components.train.backends.backend import Backend, Job, Status
from components.train.backends.docker import DockerOptions
from components.train.backends.job_settings import matching
from components.train.backends.jobset import jobset_name, plan_jobset
from components.train.backends.kubernetes_client import (
    ConflictError,
    JobSetClient,
    MissingError,
    Pod,
    RefusedError,
)
from components.train.cluster.cluster_file import Place
from components.train.supervision.launcher_log import end_message
from components.train.supervision.output import Output
from components.train.supervision.restart_policy import KILLED, SAVED, TIMED_OUT, USER_ERROR
from components.train.supervision.signals import LeftError, StopRequest, signal_socket

_POLL_S = 0.5
_TIME_LIMIT = "ended by its time limit"
_MOST_REFUSALS = 20  # An API server that has just started refuses requests for some seconds.
_LINES_S = 5.0  # The last lines of each log are waited for so long.
_TAIL = 10  # Number of last lines that are shown of a failed replica.
_kubernetes = functools.partial(flag, group="a JobSet (--backend kubernetes)", metavar="NAME")


@dataclasses.dataclass(frozen=True, kw_only=True)
class KubernetesOptions(Flags):
    """Flags of the kubernetes back end."""

    image: str | None = dataclasses.field(
        default=None, metadata=DockerOptions.__dataclass_fields__["image"].metadata
    )
    namespace: str | None = _kubernetes(str, "of the job (that of kubectl without)")
    queue: str | None = _kubernetes(str, "local queue of Kueue, in which it waits for machines")
    claim: str | None = _kubernetes(
        matching("[^:]+:/.+", "a volume claim and a path, such as data:/data", ""),
        "volume claim, and the path at which all replicas see it",
        metavar="NAME:PATH",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """Plan of a job: the manifest of its JobSet, and the limit on the time of all attempts."""

    manifest: dict[str, Any]
    timeout_s: int | None

    def to_text(self) -> str:
        """Returns the manifest as JSON, which `kubectl apply` takes."""
        return json.dumps(self.manifest, indent=2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """End of a job.

    Attributes:
      state: State as in `Status`.
      exit_code: Exit code of the job.
      why: Reason, for people.
      failed: Pod that failed first, or None.
    """

    state: str
    exit_code: int = 0
    why: str = ""
    failed: Pod | None = None


class KubernetesBackend(Backend):
    """Runs a job as a JobSet, whose name follows from the job directory.

    SIGINT and SIGTERM stop the job, whose replicas then save. The job outlives this process: after
    SIGHUP, a repeated signal or SIGKILL it continues, and the same command for the same job
    directory then follows it.

    Ignored here: accelerator types, alternatives, the disk and `scheduling.strategy`, as
    `pod_template` chooses nodes. Of a machine type only the cores count, for which pods ask.

    Other than elsewhere:

    * The time limit holds for each attempt; for all together only while a launcher follows the job.
    * Preemptions have no bound.
    * Failures in a row without a new step are not counted, and a frozen replica is not found.
    * Exit codes 129, 130 and 137 are errors: 137 mostly stands for too little memory.
    * All workers beside parameter servers share their restarts. An evaluator has no bound on its.
    * Nothing is known of a job that was stopped, since its JobSet is deleted. Replicas that are
      stopped when the chief is done, or another one has failed, leave no log.
    """

    name = "kubernetes"
    place = Place.KUBERNETES
    Options = KubernetesOptions
    ignores_because = "pod_template chooses the nodes"
    control_flags = ("namespace",)

    @contextlib.contextmanager
    def plan(self, job: Job) -> Iterator[Submission]:
        """Checks the job and makes the manifest; sends no request. Prints notes on standard error.

        Raises:
          UserError: If `--image` is missing, a `pod_template` is no patch of a Pod, or the replicas
            would not see the dataset or the job directory of the project's trainer.
        """
        if not self.options.image:
            raise UserError("--image is missing; give one that the cluster can pull")
        trainer = job.program.trainer
        manifest = plan_jobset(job, **dataclasses.asdict(self.options))
        with reading(
            "pod_template", "write a patch of a Pod, such as {spec: {priorityClassName: p}}"
        ):
            pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
            mounts = pod["spec"]["containers"][0].get("volumeMounts", ())
            visible = ("gs://", *(f"{mount['mountPath']}/" for mount in mounts))
        for path in (trainer.data_dir, trainer.job_dir) if trainer else ():
            if not f"{path}/".startswith(visible):
                raise UserError(
                    f"{path}: the replicas do not see this machine's files; give gs://BUCKET/NAME, "
                    "or a path below that of --claim NAME:PATH"
                )
        for note in self.ignored(job.cluster):
            print(f"note: {note}", file=sys.stderr)
        yield Submission(manifest=manifest, timeout_s=job.cluster.scheduling.timeout_s)

    def submit(self, plan: Submission, output: Output) -> int:
        """Creates the JobSet, in place of one that has ended, and follows it until it has ended.

        If the JobSet of the job directory still runs, it follows that one.

        Returns:
          0 if the training is done; 128+n if signal n stopped the job, or ended only this process
          while the job continues; 143 if the JobSet was deleted elsewhere; 124 at the time limit;
          137 if a replica had to be killed; else the exit code of the replica that failed, or 1 if
          it is not known.

        Raises:
          UserError: If Kubernetes refuses a request, or there are no credentials. While the job is
            followed, only after more than 20 refusals in a row.
          ConnectionError: If Kubernetes does not answer before the job is followed.
        """
        client = JobSetClient(self.options.namespace, plan.manifest["metadata"]["name"])
        with signal_socket() as signals:
            return Training(client, plan, output, signals).run()

    def status(self, job_dir: str) -> Status:
        """Returns the state of the JobSet and of its pods.

        The exit code is that of the job if the state is `failed`, else 0.

        Raises:
          UserError: If no job ran there, or Kubernetes refuses a request.
          ConnectionError: If Kubernetes does not answer.
        """
        client, jobset = self._newest(job_dir)
        pods = client.pods.values()
        state = "running" if any(pod.is_started for pod in pods) else "starting"
        outcome = _outcome(jobset, pods) or Outcome(state=state)
        replicas = (f"{pod.replica:<12} {pod.state}" for pod in pods)
        return Status(
            state=outcome.state,
            exit_code=outcome.exit_code if outcome.state == "failed" else 0,
            lines=[f"{outcome.state}, {client.name}", *replicas, outcome.why],
        )

    def cancel(self, job_dir: str) -> int:
        """Deletes the JobSet, and waits until its pods have gone.

        Returns:
          0 if everything is saved, 137 if a replica had to be killed.

        Raises:
          UserError: If no job runs there, or Kubernetes refuses a request.
          ConnectionError: If Kubernetes does not answer; the deletion may have been asked for.
        """
        client, jobset = self._newest(job_dir)
        if outcome := _outcome(jobset, ()):
            raise UserError(
                f"{job_dir}: nothing is running here; the last that did is {outcome.state}"
            )
        print(f"stopping {client.name}; its replicas save first", flush=True)
        client.delete()
        while client.get():
            list(client.changes())
        return KILLED if client.is_any_killed else 0

    def logs(self, job_dir: str) -> Iterator[tuple[str, str]]:
        """Yields the replica and the text of each log line of all pods that have started.

        One pod comes after another.

        Raises:
          UserError: If no job ran there, or Kubernetes refuses a request.
          ConnectionError: If Kubernetes does not answer.
        """
        client, _ = self._newest(job_dir)
        for pod in client.pods.values():
            if pod.is_started:
                yield from ((pod.replica, line) for _, line in client.log(pod))

    def _newest(self, job_dir: str) -> tuple[JobSetClient, dict[str, Any]]:
        """Returns a client that knows the pods of a job directory, and the JobSet.

        Raises:
          UserError: If there is no JobSet, or Kubernetes refuses a request.
          ConnectionError: If Kubernetes does not answer.
        """
        client = JobSetClient(self.options.namespace, jobset_name(job_dir))
        jobset = client.get()
        if not jobset:
            raise UserError(
                f"{job_dir}: no job ran here with components.train, or it was stopped; name the "
                "--job-dir of one"
            )
        list(client.changes())
        return client, jobset


def _outcome(jobset: Mapping[str, Any], pods: Iterable[Pod]) -> Outcome | None:
    """Returns how a JobSet has ended; None if it has not.

    Args:
      jobset: JobSet as Kubernetes shows it.
      pods: Its pods, those that have ended in the order of their ends. If none of them explains a
        failure, it counts as the end at the time limit if the JobSet has one, else as exit code 1.
    """
    status = jobset.get("status", {})
    terminal = status.get("terminalState")
    if not terminal:
        return None
    if terminal == "Completed":
        return Outcome(state="done", why="done")
    (why,) = (each["message"] for each in status["conditions"] if each["type"] == terminal)
    jobs = {job["name"]: job["template"]["spec"] for job in jobset["spec"]["replicatedJobs"]}
    # The reason names the Job that failed first.
    own_restarts = next((jobs[role]["backoffLimit"] for role in jobs if f"-{role}-0)" in why), 0)
    causes = [
        pod
        for pod in pods
        if pod.exit_code
        and not pod.is_stopped
        and not (own_restarts and pod.exit_code == SAVED)
        and pod.attempt == str(status.get("restarts", 0))
        and jobs[pod.role]["backoffLimit"] == own_restarts
    ]
    # A Job that restarts its pods itself fails with the last one, any other with the first.
    pod = causes[-1 if own_restarts else 0] if causes else None
    if pod and (len(causes) > own_restarts or pod.exit_code == USER_ERROR):
        if pod.exit_code == USER_ERROR:
            why = "it would fail again"
        return Outcome(state="failed", exit_code=pod.exit_code or 0, why=why, failed=pod)
    if "activeDeadlineSeconds" in jobs["chief"]:
        return Outcome(state="stopped", exit_code=TIMED_OUT, why=_TIME_LIMIT)
    return Outcome(state="failed", exit_code=1, why=why)


class Training:
    """Follows one JobSet."""

    def __init__(
        self, client: JobSetClient, plan: Submission, output: Output, signals: socket.socket
    ) -> None:
        self._client = client
        self._plan = plan
        self._output = output
        self._signals = signals
        self._request = StopRequest()
        # Outcome if the JobSet is gone: somebody else has deleted it, or this one.
        self._stop = Outcome(state="stopped", exit_code=SAVED, why="its JobSet was deleted")
        self._shown: set[str] = set()
        self._logs: dict[str, threading.Thread] = {}
        self._begun_s = time.monotonic()
        self._started_s = 0.0

    def run(self) -> int:
        """Creates or follows the JobSet to its end, and returns the job's exit code.

        Exit codes and errors are those of `KubernetesBackend.submit`.
        """
        client = self._client
        list(client.changes())  # A missing permission shows before anything runs.
        outcome = None
        num_refusals = 0
        try:
            self._create()
            while not outcome:
                try:
                    outcome = self._poll()
                    num_refusals = 0
                except ConnectionError as error:
                    self._show(f"{error}; the job goes on, and so does waiting for it")
                except RefusedError:
                    num_refusals += 1
                    if num_refusals > _MOST_REFUSALS:
                        raise
                self._request.wait(self._signals, _POLL_S)
        except LeftError as left:
            number = left.args[0]
            self._show(f"{signal.Signals(number).name}: {client.name} goes on without this")
            return 128 + number
        for thread in self._logs.values():
            thread.join(_LINES_S)
        event: dict[str, Any] = {
            "why": outcome.why,
            "step": None,
            "seconds": time.monotonic() - self._begun_s,
            "tail": [],
        }
        if pod := outcome.failed:
            event |= {
                "replica": pod.replica,
                "ending": f"exit code {pod.exit_code}",
                "log": f"kubectl logs {pod.name}",
            }
            with contextlib.suppress(RefusedError, ConnectionError):
                event["tail"] = [text for _, text in client.log(pod)][-_TAIL:]
        self._output.lines("launcher", end_message(event).splitlines())
        return outcome.exit_code

    def _create(self) -> None:
        """Creates the JobSet, in place of one that has ended; creates none if one runs.

        Until the old one has gone, it waits as `StopRequest.wait` does, and may raise a LeftError.
        """
        while True:
            try:
                return self._client.create(self._plan.manifest)
            except ConflictError:
                jobset = self._client.get()
            if (
                jobset
                and "deletionTimestamp" not in jobset["metadata"]
                and not _outcome(jobset, ())
            ):
                return self._show(f"{self._client.name} runs already; this follows it")
            self._client.delete()
            self._request.wait(self._signals, _POLL_S)

    def _poll(self) -> Outcome | None:
        """Shows what changes within a second, and ends the JobSet if it has to end.

        Returns the outcome once the JobSet and all its pods have ended, None before.
        """
        client = self._client
        jobset = client.get()
        for pod in client.changes():
            if pod.is_started and pod.name not in self._logs:
                self._started_s = self._started_s or time.monotonic()
                thread = threading.Thread(target=self._follow, args=(pod,), daemon=True)
                self._logs[pod.name] = thread
                thread.start()
            self._show(f"{pod.replica} {pod.state}", pod.name)
        pods = client.pods.values()
        if jobset:
            outcome = _outcome(jobset, pods)
            if not outcome:
                self._check_limits(jobset)
        else:
            outcome = self._stop
            if client.is_any_killed:
                outcome = dataclasses.replace(outcome, exit_code=KILLED)
        return outcome if all(pod.is_over for pod in pods) else None

    def _check_limits(self, jobset: Mapping[str, Any]) -> None:
        """Shows whether the job waits in a queue, and deletes its JobSet if it has to end."""
        limit_s = self._plan.timeout_s
        if jobset["spec"].get("suspend"):
            self._show(f"{self._client.name} is suspended")
        if number := self._request.number:
            self._stop = Outcome(state="stopped", exit_code=128 + number, why="stopped")
        elif limit_s and 0 < self._started_s < time.monotonic() - limit_s:
            self._stop = Outcome(state="stopped", exit_code=TIMED_OUT, why=_TIME_LIMIT)
        else:
            return
        self._show(f"{self._stop.why}: stopping the replicas")
        self._client.delete()

    def _follow(self, pod: Pod) -> None:
        """Shows the log of a pod until its program has ended; after an outage it reads it again."""
        last = ""
        is_last = False
        while not is_last:
            is_last = self._client.pods.get(pod.name, pod).is_over
            try:
                for written, text in self._client.log(pod, follow=True):
                    if written > last:
                        last = written
                        self._output.lines(pod.replica, text.split("\r"))
            except MissingError:
                return
            except RefusedError as error:
                self._show(str(error))
            except ConnectionError:
                is_last = False
            time.sleep(_POLL_S)

    def _show(self, text: str, key: str = "") -> None:
        """Shows a line, unless it was shown before with the same key."""
        if key + text not in self._shown:
            self._shown.add(key + text)
            self._output.lines("launcher", [text])

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

import yaml

from common.cli import Flags, flag
from common.errors import UserError, reading
from common.storage.storage import is_remote
from components.train.backends.backend import Backend, Job, Status
from components.train.backends.docker import DockerOptions
from components.train.backends.job_settings import matching
from components.train.backends.jobset import jobset_name, plan_jobset
from components.train.backends.kubernetes_client import (
    ConflictError,
    JobSets,
    MissingError,
    Pod,
    Pods,
    RefusedError,
)
from components.train.cluster.cluster_file import Place, Scheduling
from components.train.supervision.launcher_log import end_message
from components.train.supervision.output import Output
from components.train.supervision.restart_policy import KILLED, SAVED, TIMED_OUT, USER_ERROR
from components.train.supervision.signals import LeftError, StopRequest, signal_socket

_POLL_S = 0.5
_TIME_LIMIT = "ended by its time limit"
_WARNINGS_S = 10.0
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
    service_account: str | None = _kubernetes(str, "that its pods act as")
    queue: str | None = _kubernetes(str, "local queue of Kueue, in which it waits for machines")
    claim: str | None = _kubernetes(
        matching("[^:]+:/.+", "a volume claim and a path, such as data:/data", ""),
        "volume claim, and the path at which all replicas see it",
        metavar="NAME:PATH",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """Plan of a job: the manifest of its JobSet, and its limits."""

    manifest: dict[str, Any]
    limits: Scheduling

    def to_text(self) -> str:
        """Returns the manifest as YAML, which `kubectl apply` takes."""
        # By way of JSON, parts that are alike are written out.
        return yaml.safe_dump(json.loads(json.dumps(self.manifest)), sort_keys=False, width=100)


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

    * The time limit holds for each attempt; for all together only while a launcher follows the job,
      which also ends it after too many preemptions.
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
          UserError: If `--image` is missing, or the replicas would not see the dataset or the job
            directory of the project's trainer.
        """
        settings = dataclasses.asdict(self.options)
        trainer = job.program.trainer
        namespace = settings.pop("namespace")
        if not settings["image"]:
            raise UserError("--image is missing; give one that the cluster can pull")
        manifest = plan_jobset(job, **settings)
        if namespace:
            manifest["metadata"]["namespace"] = namespace
        with reading(
            "pod_template", "write a patch of a Pod, such as {spec: {priorityClassName: p}}"
        ):
            pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
            mounts = pod["containers"][0].get("volumeMounts", ())
            visible = tuple(f"{mount['mountPath']}/" for mount in mounts)
        for path in (trainer.data_dir, trainer.job_dir) if trainer else ():
            if not is_remote(path) and not f"{path}/".startswith(visible):
                raise UserError(
                    f"{path}: the replicas do not see this machine's files; give gs://BUCKET/NAME, "
                    "or a path below that of --claim NAME:PATH"
                )
        for note in self.ignored(job.cluster):
            print(f"note: {note}", file=sys.stderr)
        yield Submission(manifest=manifest, limits=job.cluster.scheduling)

    def submit(self, plan: Submission, output: Output) -> int:
        """Creates the JobSet, or follows the one that runs, until it has ended.

        Returns:
          0 if the training is done; 128+n if signal n stopped this process; 143 if the JobSet was
          deleted elsewhere; 124 at the time limit; 137 if a replica had to be killed; else the exit
          code of the replica that failed.

        Raises:
          UserError: If Kubernetes refuses a request, or there are no credentials.
          ConnectionError: If Kubernetes does not answer before the job is followed.
        """
        with signal_socket() as signals:
            return Training(self._jobsets, plan, output, signals).run()

    def status(self, job_dir: str) -> Status:
        """Returns the state of the JobSet and of its pods.

        Raises:
          UserError: If no job ran there, or Kubernetes refuses a request.
        """
        jobset, pods = self._newest(job_dir)
        known = pods.known.values()
        state = "running" if any(pod.is_started for pod in known) else "starting"
        outcome = _outcome(jobset, known) or Outcome(state=state)
        name, created = (jobset["metadata"][key] for key in ("name", "creationTimestamp"))
        lines = [f"{outcome.state}, {name}, created {created}"]
        lines += [f"{pod.replica:<12} {pod.progress}" for pod in known]
        return Status(
            state=outcome.state,
            exit_code=outcome.exit_code if outcome.state == "failed" else 0,
            lines=[*lines, *filter(None, [outcome.why])],
        )

    def cancel(self, job_dir: str) -> int:
        """Deletes the JobSet, and waits until its pods have gone.

        Returns:
          0 if everything is saved, 137 if a replica had to be killed.

        Raises:
          UserError: If no job runs there, or Kubernetes refuses a request.
        """
        jobset, pods = self._newest(job_dir)
        name = jobset["metadata"]["name"]
        if outcome := _outcome(jobset, ()):
            raise UserError(
                f"{job_dir}: nothing is running here; the last that did is {outcome.state}"
            )
        print(f"stopping {name}; its replicas save first", flush=True)
        self._jobsets.delete(name)
        while self._jobsets.get(name):
            list(pods.changes())
        return KILLED if _is_any_killed(pods) else 0

    def logs(self, job_dir: str) -> Iterator[tuple[str, str]]:
        """Yields the lines of the pods that there are, one after another.

        Raises:
          UserError: If no job ran there, or Kubernetes refuses a request.
        """
        _, pods = self._newest(job_dir)
        for pod in pods.known.values():
            if pod.is_started:
                yield from ((pod.replica, line) for _, line in pods.log(pod))

    @functools.cached_property
    def _jobsets(self) -> JobSets:
        return JobSets(self.options.namespace)

    def _newest(self, job_dir: str) -> tuple[dict[str, Any], Pods]:
        """Returns the JobSet of a job directory, and its pods.

        Raises:
          UserError: If there is none.
        """
        name = jobset_name(job_dir)
        jobset = self._jobsets.get(name)
        if not jobset:
            raise UserError(
                f"{job_dir}: no job ran here with components.train, or it was stopped; name the "
                "--job-dir of one"
            )
        pods = Pods(self._jobsets, name)
        list(pods.changes())
        return jobset, pods


def _outcome(jobset: Mapping[str, Any], pods: Iterable[Pod]) -> Outcome | None:
    """Returns how a JobSet has ended; None if it has not.

    Args:
      jobset: JobSet as Kubernetes shows it.
      pods: Its pods, those that have ended in the order of their ends.
    """
    status = jobset.get("status", {})
    terminal = status.get("terminalState")
    if not terminal:
        return None
    if terminal == "Completed":
        return Outcome(state="done", why="done")
    (why,) = (each["message"] for each in status["conditions"] if each["type"] == terminal)
    jobs = {job["name"]: job["template"]["spec"] for job in jobset["spec"]["replicatedJobs"]}
    own_restarts = next(
        (spec["backoffLimit"] for role, spec in jobs.items() if f"-{role}-0)" in why), 0
    )
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


def _is_any_killed(pods: Pods) -> bool:
    """Returns whether a pod that was asked to end had to be killed."""
    return any(pod.is_stopped and pod.exit_code == KILLED for pod in pods.known.values())


class Training:
    """Follows one JobSet."""

    def __init__(
        self, jobsets: JobSets, plan: Submission, output: Output, signals: socket.socket
    ) -> None:
        self._jobsets = jobsets
        self._plan = plan
        self._output = output
        self._signals = signals
        self._name = plan.manifest["metadata"]["name"]
        self._pods = Pods(jobsets, self._name)
        self._request = StopRequest()
        self._stop: Outcome | None = None  # Outcome, once this has decided that the job ends.
        self._shown: set[str] = set()
        self._logs: dict[str, threading.Thread] = {}
        self._begun_s = time.monotonic()
        self._started_s = 0.0
        self._warned_s = 0.0

    def run(self) -> int:
        """Creates the JobSet and follows it to its end, as `KubernetesBackend.submit` says."""
        # Missing permissions show before anything runs, and old warnings are not shown.
        self._shown.update(self._jobsets.warnings(self._name), map(str, self._pods.changes()))
        outcome = None
        num_refusals = 0
        try:
            self._create()
            self._pods = Pods(self._jobsets, self._name)
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
                self._wait()
        except LeftError as left:
            number = left.args[0]
            self._show(f"{signal.Signals(number).name}: {self._name} goes on without this")
            return 128 + number
        for thread in self._logs.values():
            thread.join(_LINES_S)
        seconds = time.monotonic() - self._begun_s
        event: dict[str, Any] = {"why": outcome.why, "step": None, "seconds": seconds, "tail": []}
        if pod := outcome.failed:
            event |= {"replica": pod.replica, "ending": f"exit code {pod.exit_code}"}
            event["log"] = f"kubectl logs {pod.name}"
            with contextlib.suppress(RefusedError, ConnectionError):
                event["tail"] = [text for _, text in self._pods.log(pod)][-_TAIL:]
        self._output.lines("launcher", end_message(event).splitlines())
        return outcome.exit_code

    def _create(self) -> None:
        """Creates the JobSet, in place of one that has ended; does nothing if one runs."""
        while True:
            try:
                return self._jobsets.create(self._plan.manifest)
            except ConflictError:
                jobset = self._jobsets.get(self._name)
            is_deleted = jobset and "deletionTimestamp" in jobset["metadata"]
            if jobset and not (is_deleted or _outcome(jobset, ())):
                return self._show(f"{self._name} runs already; this follows it")
            self._jobsets.delete(self._name)
            self._wait()

    def _poll(self) -> Outcome | None:
        """Shows what changes within a second, and returns the outcome once all has ended."""
        jobset = self._jobsets.get(self._name)
        for pod in self._pods.changes():
            if pod.is_started and pod.uid not in self._logs:
                self._started_s = self._started_s or time.monotonic()
                thread = threading.Thread(target=self._follow, args=(pod,), daemon=True)
                self._logs[pod.uid] = thread
                thread.start()
            if pod.exit_code is not None:
                self._show(f"{pod.replica} {pod.progress}", pod.uid)
        if time.monotonic() > self._warned_s + _WARNINGS_S:
            self._warned_s = time.monotonic()
            for text in self._jobsets.warnings(self._name):
                self._show(text)
        known = self._pods.known.values()
        if jobset:
            outcome = _outcome(jobset, known)
            if not outcome:
                self._check_limits(jobset)
        else:
            deleted = Outcome(state="stopped", exit_code=SAVED, why="its JobSet was deleted")
            outcome = self._stop or deleted
            if _is_any_killed(self._pods):
                outcome = dataclasses.replace(outcome, exit_code=KILLED)
        return outcome if all(pod.is_over for pod in known) else None

    def _check_limits(self, jobset: Mapping[str, Any]) -> None:
        """Shows how often the job was restarted, and deletes its JobSet if it has to end."""
        status = jobset.get("status", {})
        limits = self._plan.limits
        num_errors = status.get("restartsCountTowardsMax", 0)
        num_preemptions = status.get("restarts", 0) - num_errors
        state = "suspended" if jobset["spec"].get("suspend") else "started"
        counts = f"restarts after errors: {num_errors}, after preemptions: {num_preemptions}"
        self._show(f"{self._name} is {state}; {counts}")
        exit_code = 0
        why = ""
        if self._request.number:
            exit_code = 128 + self._request.number
            why = "stopped"
        elif num_preemptions > limits.max_restarts:
            exit_code = SAVED
            why = f"more than {limits.max_restarts} preemptions"
        elif limits.timeout_s and 0 < self._started_s < time.monotonic() - limits.timeout_s:
            exit_code = TIMED_OUT
            why = _TIME_LIMIT
        if why:
            self._stop = self._stop or Outcome(state="stopped", exit_code=exit_code, why=why)
            if not self._request.number:  # Of a signal, `_wait` has said so.
                self._show(f"{why}: stopping the replicas")
            self._jobsets.delete(self._name)

    def _follow(self, pod: Pod) -> None:
        """Shows the log of a pod until its program has ended; after an outage it reads it again."""
        last = ""
        is_last = False
        while not is_last:
            is_last = self._pods.known[pod.uid].is_over
            try:
                for written, text in self._pods.log(pod, follow=True):
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

    def _wait(self) -> None:
        if name := self._request.wait(self._signals, _POLL_S):
            self._show(f"{name}: stopping the replicas")

    def _show(self, text: str, key: str = "") -> None:
        """Shows a line, unless one with the same key, or else the same text, was shown before."""
        if (key or text) not in self._shown:
            self._shown.add(key or text)
            self._output.lines("launcher", [text])

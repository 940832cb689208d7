"""The vertex back end: training as custom jobs of Vertex AI, without a pipeline.

A job is submitted and followed to its end. `attempts` decides whether another one follows.
"""

import collections
import contextlib
import dataclasses
import functools
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from common.cli import flag
from common.errors import UserError
from common.flags import positive
from components.train.backends.attempts import (
    Again,
    Attempt,
    Bounds,
    JobStore,
    Over,
    first_attempt,
    next_attempt,
)
from components.train.backends.backend import Backend, Job, Status
from components.train.backends.docker import DockerOptions
from components.train.backends.job_settings import (
    DEFAULT_REGION,
    JobSettings,
    new_name,
    project_id,
    region_name,
)
from components.train.backends.vertex_client import (
    CloudLogs,
    Ending,
    Jobs,
    Outages,
    ending,
    location_of,
    replica_name,
)
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Place
from components.train.supervision.launcher_log import end_message
from components.train.supervision.output import Output
from components.train.supervision.signals import LeftError, StopRequest, signal_socket
from trainer.cluster.member import ROLES
from trainer.job import done

POLL_S = 5.0  # Cloud Logging lets a project read 60 times a minute.
LINES_S = 10.0  # The last lines arrive in Cloud Logging some seconds after the end of a job.
ERROR_S = 90.0  # The error of a failed job is known "about one minute" after its end.
_TAIL = 10  # Number of last lines that are shown of a failed replica.
# Arguments of `CustomTrainingJobOp` that are fields of `CustomJobSpec.scheduling`.
_SCHEDULING = ("strategy", "timeout", "restart_job_on_worker_restart")
# States of `Status` by the ending of an attempt; all other endings are `failed`.
_STATES = {None: "running", Ending.SUCCEEDED: "done", Ending.CANCELLED: "stopped"}
_vertex = functools.partial(flag, group="a job of Vertex AI (--backend vertex)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """Plan of a training on Vertex AI, from which the request of each attempt is made.

    Attributes:
      name: Display name of the first job; those of later jobs have a number added.
      project: Id of the project; empty in a dry run.
      region: Region of Vertex AI.
      job: Job to run, whose directory is in a bucket.
      arguments: Arguments of `CustomTrainingJobOp` for each choice of machines of the cluster.
      bounds: Limits on all attempts together.
    """

    name: str
    project: str
    region: str
    job: Job
    arguments: tuple[Mapping[str, Any], ...]
    bounds: Bounds

    def body(self, name: str, order: Again) -> dict[str, Any]:
        """Returns the request body for an attempt: its display name, machines and time limit."""
        limit = order.timeout_s and f"{order.timeout_s}s"
        return request(name, {**self.arguments[order.choice], "timeout": limit})

    def to_text(self) -> str:
        """Returns the `jobSpec` of the first job as JSON text, for a dry run."""
        return json.dumps(request(self.name, self.arguments[0])["jobSpec"], indent=2)


def request(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Translates arguments of `CustomTrainingJobOp` into a request body of `customJobs.create`.

    The arguments must have `labels`. Those with empty values are left out.
    """
    spec = {key: value for key, value in arguments.items() if value}
    key = spec.pop("encryption_spec_key_name", None)
    labels = spec.pop("labels")
    spec["scheduling"] = {key: spec.pop(key) for key in _SCHEDULING if key in spec}
    encryption = {"encryptionSpec": {"kmsKeyName": key}} if key else {}
    return {"displayName": name, "labels": labels, "jobSpec": _camel(spec), **encryption}


def _camel(value: Any) -> Any:
    """Returns a copy in which the keys of all mappings are in camel case, as in JSON requests."""
    if isinstance(value, Mapping):
        return {
            re.sub("_([a-z])", lambda match: match[1].upper(), k): _camel(each)
            for k, each in value.items()
        }
    return [_camel(each) for each in value] if isinstance(value, list | tuple) else value


@dataclasses.dataclass(frozen=True, kw_only=True)
class VertexOptions(JobSettings):
    """Flags of the vertex back end."""

    image: str | None = dataclasses.field(
        default=None, metadata=DockerOptions.__dataclass_fields__["image"].metadata
    )
    project: str | None = _vertex(project_id, "id of the project (GOOGLE_CLOUD_PROJECT without)")
    region: str | None = _vertex(
        region_name,
        f"of Vertex AI (the cluster file's, else {DEFAULT_REGION})",
        "--location",
    )
    max_machine_hours: float | None = _vertex(positive, "that all its jobs together may take (any)")


class VertexBackend(Backend):
    """Runs a job as a custom job of Vertex AI, and submits it again as `restart_policy` decides.

    SIGINT and SIGTERM cancel the job, whose replicas then save. The job outlives this process:
    after SIGHUP, a repeated signal or SIGKILL it continues, and the same command for the same job
    directory then follows it.
    """

    name = "vertex"
    place = Place.VERTEX
    Options = VertexOptions
    ignores_because = "Vertex AI runs it by rules of its own"
    control_flags = ("project", "region")

    @contextlib.contextmanager
    def plan(self, job: Job) -> Iterator[Submission]:
        """Checks the job and its settings, and makes the request for each choice of machines.

        Sends no request. Prints a note on standard error for each key that is ignored, and if the
        pools are not in the order by which Vertex AI names their roles.

        Raises:
          UserError: If `--image` or the machine type of a pool is missing, the job directory is no
            `gs://BUCKET/NAME`, settings contradict each other or, but for a dry run, the project or
            the image's digest is missing, or the dataset is on this machine.
        """
        settings, cluster, program = self.options, job.cluster, job.program
        region = settings.region or job.region or DEFAULT_REGION
        settings.check(region)
        image = settings.image or ""
        is_fixed = re.fullmatch(r"[a-z0-9][\w./:-]*@sha256:[0-9a-f]{64}", image)
        if not image or not (job.dry_run or is_fixed):
            raise UserError(
                f"--image {image or 'is missing'}: a job may be submitted again, and a tag be "
                "moved; give REF@sha256:..."
            )
        if not re.fullmatch("gs://[^/]+/.*[^/]", program.job_dir):
            raise UserError(
                f"--job-dir {program.job_dir}: the replicas need a bucket; give gs://BUCKET/NAME"
            )
        data_dir = program.trainer.data_dir if program.trainer else "gs://"
        is_here = not os.path.isabs(data_dir) or os.path.exists(data_dir)
        if is_here and not (job.dry_run or data_dir.startswith(("gs://", "/gcs/"))):
            raise UserError(
                f"--data-dir {data_dir}: the replicas do not see this machine's files; copy it to "
                "a bucket, and give gs://BUCKET/NAME"
            )
        name = new_name()
        arguments = {
            **settings.arguments(cluster, name),
            "base_output_directory": {"output_uri_prefix": program.job_dir},
        }
        env, command = settings.environment, program.command
        notes = list(self.ignored(cluster))
        if misnamed := [
            role for role, name in zip(cluster.pools, ROLES, strict=False) if role != name
        ]:
            notes.append(
                f"Vertex AI's TF_CONFIG gives {' and '.join(misnamed)} another role, by position; "
                "our trainer goes by CLUSTER_SPEC and TRAINER_POOL_ROLES instead, and so must a "
                "program of yours"
            )
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        yield Submission(
            name=name,
            project="" if job.dry_run else self._project,
            region=region,
            job=job,
            arguments=tuple(
                {
                    "worker_pool_specs": plan_vertex(
                        each, image, program.args, command=command, env=env
                    ),
                    **arguments,
                }
                for each in cluster.choices
            ),
            bounds=Bounds(
                cluster=cluster,
                timeout_s=cluster.scheduling.timeout_s,
                machine_hours=settings.max_machine_hours,
            ),
        )

    def submit(self, plan: Submission, output: Output) -> int:
        """Submits the job and follows it to its end, then again as often as its limits allow.

        A job that still runs is followed first. Nothing is submitted if the training is done
        already. The attempts are recorded in `attempts.json` of the job directory.

        Returns:
          0 if the training is done; 128+n if signal n stopped the job, or ended only this process
          while the job continues; 143 if the job was cancelled elsewhere; 124 if a limit is used
          up; 75 if there are no machines; else the exit code of the replica that failed.

        Raises:
          UserError: If Google Cloud refuses a request, another command works on the job directory,
            earlier attempts have used up a limit, or a record is damaged.
          ConnectionError: If Google Cloud does not answer before the first job is followed.
        """
        with signal_socket() as signals:
            return Training(plan, output, signals).run()

    def status(self, job_dir: str) -> Status:
        """Returns the state of the last attempt, by its record or, if it runs, by Vertex AI.

        The exit code of a failure is 1 until a launcher has recorded how the attempt ended.

        Raises:
          UserError: If no job ran there, its record is damaged, or Google Cloud refuses a request.
          ConnectionError: If Google Cloud does not answer.
        """
        attempt, job = self._last_attempt(job_dir)
        state = _STATES.get(ending(job) if job else attempt.ending, "failed")
        exit_code = attempt.exit_code if state == "failed" else 0
        line = f"{state}, {attempt.display_name} on {attempt.shape}, submitted {attempt.submitted}"
        return Status(state=state, exit_code=exit_code, lines=[line, attempt.error])

    def cancel(self, job_dir: str) -> int:
        """Cancels the running job, and waits until it has ended.

        Returns:
          0 if it was cancelled or has succeeded, else the exit code in the record.

        Raises:
          UserError: If no job runs there, its record is damaged, or Google Cloud refuses a request.
          ConnectionError: If Google Cloud does not answer.
        """
        attempt, job = self._last_attempt(job_dir)
        if not job or ending(job):
            raise UserError(
                f"{job_dir}: nothing is running here; the last that did is "
                f"{self.status(job_dir).state}"
            )
        print(f"stopping {attempt.display_name}; its replicas save first", flush=True)
        self._jobs.cancel(job.name)
        while not ending(job):
            time.sleep(POLL_S)
            job = self._jobs.get(job.name)
        return self.status(job_dir).exit_code

    def logs(self, job_dir: str) -> Iterator[tuple[str, str]]:
        """Yields replica and text of each line in Cloud Logging of the last attempt.

        Raises:
          UserError: If no job ran there, its record is damaged, or Google Cloud refuses a request.
          ConnectionError: If Google Cloud does not answer.
        """
        attempt, _ = self._last_attempt(job_dir)
        for name in attempt.jobs or [attempt.name]:
            yield from CloudLogs(
                self._project, name.rpartition("/")[2], list(attempt.machines)
            ).new()

    @property
    def _project(self) -> str:
        project = self.options.project or os.environ.get("GOOGLE_CLOUD_PROJECT")
        if not project:
            raise UserError("--project is missing; give the id of a project, such as my-project")
        return project

    @property
    def _jobs(self) -> Jobs:
        return Jobs(self._project, self.options.region or DEFAULT_REGION)

    def _last_attempt(self, job_dir: str) -> tuple[Attempt, Any]:
        """Returns the newest attempt of a job directory, and its `CustomJob`.

        If the newest attempt has not ended by its record, but Vertex AI has no job of it, it is
        passed over. The job is None if the record says that the attempt has ended.

        Raises:
          UserError: If no job ran there, Vertex AI has none of the only attempt, the record is
            damaged, or Google Cloud refuses a request.
          ConnectionError: If Google Cloud does not answer.
        """
        store = JobStore(job_dir)
        store.load()
        job = _unfinished(store, self._jobs)
        if not store.attempts:
            raise UserError(
                f"{job_dir}: no job ran here with components.train; name the --job-dir of one"
            )
        return store.attempts[-1], job


def _unfinished(store: JobStore, jobs: Jobs) -> Any:
    """Returns the `CustomJob` of the last attempt if the record does not say that it has ended.

    Otherwise, and if there is no job, returns None. The job may have ended meanwhile. Sets the
    attempt's name to that of the job. Removes the attempt from `store.attempts`, without writing
    the record, if Vertex AI has no such job: its request was never sent, or somebody has deleted
    it.

    Raises what `Jobs.named` raises.
    """
    attempts = store.attempts
    if not attempts or attempts[-1].ending:
        return None
    job = jobs.named(attempts[-1].display_name, attempts[-1].region)
    if job:
        attempts[-1].name = job.name
    else:
        attempts.pop()
    return job


class Training:
    """Runs the jobs of one training, one after another."""

    def __init__(self, plan: Submission, output: Output, signals: socket.socket) -> None:
        self._plan, self._output, self._signals = plan, output, signals
        self._jobs, self._store = (
            Jobs(plan.project, plan.region),
            JobStore(plan.job.program.job_dir),
        )
        self._link = ""  # Console page of the newest job; empty before one is followed.
        self._request = StopRequest()
        self._outages = Outages(plan.project, "the job", self._show)
        self._tails = collections.defaultdict[str, Any](lambda: collections.deque(maxlen=_TAIL))
        self._roles = list(plan.job.cluster.pools)

    def run(self) -> int:
        """Submits and follows jobs until the training is done or given up.

        After SIGHUP or a repeated signal, returns while the job continues.

        Returns:
          0 if it is done; 128+n after signal n; 143 if the job was cancelled elsewhere; 124 if a
          limit is used up; 75 without machines; else the exit code of the replica that failed.

        Raises:
          UserError: If Google Cloud refuses a request, another command works on the job directory,
            earlier attempts have used up a limit, or a record is damaged.
          ConnectionError: If Google Cloud does not answer before the first job is followed.
        """
        store, bounds = self._store, self._plan.bounds
        store.load()
        order: Again | Over = Again(choice=0, machines=self._plan.job.cluster, timeout_s=None)
        is_running = bool(_unfinished(store, self._jobs))
        # A job that still runs counts as an attempt of this command.
        num_earlier = len(store.attempts) - is_running
        if not is_running:
            is_done = self._is_done()
            order = (
                Over(why="already done", exit_code=0)
                if is_done
                else first_attempt(store.attempts, bounds)
            )
        try:
            while isinstance(order, Again) and not self._request.number:
                attempt = self._patiently(self._begin, order)
                if not attempt.ending:
                    self._patiently(store.complete, [self._follow(attempt)])
                took = (
                    f"after {attempt.seconds:.0f} s of its machines; newest checkpoint: "
                    f"{attempt.step_after}"
                )
                self._show(
                    f"{attempt.display_name} {attempt.ending} {took}. {attempt.error}".rstrip()
                )
                self._patiently(store.write, store.attempts)
                order = next_attempt(store.attempts, bounds, num_earlier)
        except LeftError as left:
            number = left.args[0]
            self._show(f"{signal.Signals(number).name}: the job goes on without this; {self._link}")
            return 128 + number
        if isinstance(order, Again) or (self._request.number and order.exit_code):
            order = Over(why="stopped", exit_code=128 + self._request.number)
        self._show_end(order)
        return order.exit_code

    def _is_done(self) -> bool:
        """Returns whether the training is done, so that no job is needed.

        If the project's trainer has left its record `DONE.json`, the training is done if that has
        reached the steps or epochs asked for. Otherwise it is done if the last job has succeeded.
        """
        attempts, program = self._store.attempts, self._plan.job.program
        goal = program.trainer
        if goal and (record := done.load(program.job_dir)):
            return goal.is_met_by(record)
        return bool(attempts) and attempts[-1].ending is Ending.SUCCEEDED

    def _begin(self, order: Again) -> Attempt:
        """Returns the attempt whose job runs, or else submits a new one.

        The attempt has already ended, with a stockout, if there is no quota for its machines.
        """
        plan, store = self._plan, self._store
        if _unfinished(store, self._jobs):
            return store.attempts[-1]
        count = len(store.attempts)
        name = f"{plan.name}-{count + 1}" if count else plan.name
        send = functools.partial(self._jobs.create, plan.body(name, order))
        return store.submit(name, order, send, plan.region)

    def _follow(self, attempt: Attempt) -> Any:
        """Shows the states and the log of a job until it has ended, and returns the `CustomJob`.

        After the end it waits for the last lines, and for the error of a failed job. It cancels the
        job after a stop request. It may raise a RefusedError, and a `LeftError` as `_wait` does.
        """
        name, job_id = attempt.display_name, attempt.name.rpartition("/")[2]
        place = f"locations/{location_of(attempt.name)}/training/{job_id}"
        project = self._plan.project
        self._link = f"https://console.cloud.google.com/vertex-ai/{place}?project={project}"
        self._show(f"{name} on {attempt.shape}: {self._link}")
        logs = CloudLogs(self._plan.project, job_id, self._roles)
        state, how, ended_s = "", None, 0.0
        while True:
            with self._outages.tolerated():
                if self._request.number and not how and state != "cancelling":
                    self._jobs.cancel(attempt.name)
                job = self._jobs.get(attempt.name)
                if (newest := job.state.name.removeprefix("JOB_STATE_").lower()) != state:
                    state, how = newest, ending(job)
                    self._show(f"{name} is {state}")
                for replica, text in logs.new():
                    self._tails[replica].append(text)
                    self._output.lines(replica, [text])
                if how:
                    is_late = not job.end_time or (state == "failed" and not job.error.message)
                    if ended_s >= (ERROR_S if is_late else LINES_S):
                        return job
                    ended_s += POLL_S
            self._wait()

    def _show_end(self, order: Over) -> None:
        # The message is made from the fields of a launcher's event `end`, as for local back ends.
        attempts = self._store.attempts
        step = max((attempt.step_after for attempt in attempts), default=-1)
        end = {"event": "end", "exit_code": order.exit_code, "why": order.why}
        end |= {
            "seconds": sum(attempt.seconds for attempt in attempts),
            "step": None if step < 0 else step,
        }
        if attempts and attempts[-1].ending is Ending.FAILED and order.why != "stopped":
            error = attempts[-1].error
            if replica := replica_name(error, self._roles):
                end |= {
                    "replica": replica,
                    "ending": error,
                    "log": self._link,
                    "tail": list(self._tails[replica]),
                }
        self._output.lines("launcher", end_message(end).splitlines())

    def _patiently(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function that uses Google Cloud, and returns its result.

        Once this process has begun to follow its first job, a call that fails with a `UserError`
        or `OSError` is repeated every `POLL_S` seconds until it succeeds or is refused. Before
        that, any error is raised, and later those of other types.

        Raises:
          RefusedError: If Google Cloud refuses the call.
          LeftError: As `_wait` raises it, between two attempts.
        """
        while self._link:
            with self._outages.tolerated():
                return call(*arguments)
            # This is reached only if `tolerated` has suppressed an error.
            self._wait()
        return call(*arguments)

    def _wait(self) -> None:
        """Waits as `StopRequest.wait` does, and shows a first signal; may raise a LeftError."""
        if name := self._request.wait(self._signals, POLL_S):
            self._show(f"{name}: stopping the replicas")

    def _show(self, text: str) -> None:
        self._output.lines("launcher", [text])

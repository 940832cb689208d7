"""A training on Vertex AI from its first job to its end: submitted, followed, and submitted again."""

import collections
import contextlib
import dataclasses
import json
import select
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any

from common.errors import UserError, first_line
from common.google_cloud import LOGIN
from components.train.backends.job_store import JobStore, Taken
from components.train.backends.vertex_client import (
    ENDED,
    CloudLogs,
    Jobs,
    NoCapacity,
    Refused,
    expired,
    log_in_again,
    replica_name,
)
from components.train.cluster.cluster_file import Cluster
from components.train.supervision.launcher_log import end_message
from components.train.supervision.output import Output
from components.train.supervision.restart_policy import (
    Again,
    Attempt,
    Bounds,
    Ending,
    Over,
    first_attempt,
    next_attempt,
)
from components.train.supervision.signals import StopRequest, received
from trainer.options import Options

POLL_S = 5.0  # Cloud Logging lets a project read 60 times a minute.
LINES_S = 10.0  # After a job's end its last lines are still on their way,
ERROR_S = 90.0  # and why it failed is known "about one minute" later.
_TAIL = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """A training whose job is submitted, and submitted again."""

    name: str  # Display name of the first job; the others have a number behind it.
    project: str
    region: str
    job_dir: str  # In a bucket.
    choices: tuple[Cluster, ...]  # The machines that it may run on, in this order.
    bodies: tuple[Mapping[str, Any], ...]  # By choice, the request.
    bounds: Bounds
    trainer: Options | None  # None of another program than our trainer.

    def body(self, name: str, order: Again) -> dict[str, Any]:
        """Returns the request of an attempt."""
        body = self.bodies[order.choice]
        limit = {} if order.timeout_s is None else {"timeout": f"{order.timeout_s}s"}
        spec = {**body["jobSpec"], "scheduling": {**body["jobSpec"]["scheduling"], **limit}}
        return {**body, "displayName": name, "jobSpec": spec}

    def gcloud(self) -> str:
        """Returns the command that submits the first job; FILE has its `jobSpec`."""
        body = self.bodies[0]
        labels = ",".join(f"{key}={value}" for key, value in body["labels"].items())
        key = f" --kms-key {body['encryptionSpec']['kmsKeyName']}" if "encryptionSpec" in body else ""
        where = f"--region {self.region} --display-name {self.name} --labels {labels}{key}"
        return f"gcloud ai custom-jobs create {where} --config FILE"

    def to_json(self) -> str:
        """Returns the `jobSpec` of the first job."""
        return json.dumps(self.bodies[0]["jobSpec"], indent=2)


class _Left(Exception):
    """A signal asks to leave the job to itself; its argument is the number."""


class Training:
    """The jobs of one training, one after another."""

    def __init__(self, plan: Submission, output: Output, signals: socket.socket) -> None:
        self._plan, self._output, self._signals = plan, output, signals
        self._jobs, self._store = Jobs(plan.project, plan.region), JobStore(plan.job_dir)
        self._link = ""  # Where the console shows the job that runs; empty before there is one.
        self._request = StopRequest()
        self._stop = 0  # The signal that asked for the job's end.
        self._troubles: set[str] = set()  # Why Google Cloud could not be asked, as it was shown.
        self._tails: dict[str, collections.deque[str]] = {}
        self._roles = list(plan.choices[0].pools)

    def run(self) -> int:
        """Goes on until the training is done or given up; returns the exit code."""
        self._ask(self._store.load)
        unfinished = line = self._unfinished()
        earlier = self._store.attempts
        attempts: list[Attempt] = []
        order: Again | Over = Again(choice=0, timeout_s=None)
        if not unfinished:
            is_done = self._ask(self._is_done)
            order = Over(why="already done", exit_code=0) if is_done else first_attempt(self._plan.bounds, earlier)
        try:
            while isinstance(order, Again) and not self._stop:
                line = unfinished or self._submit(order)
                unfinished = {}
                attempt = self._follow(line) if "name" in line else self._store.attempts[-1]
                took = f"after {attempt.seconds:.0f} s of its machines; newest checkpoint: {attempt.step_after}"
                self._say(f"{line['display_name']} {attempt.ending} {took}. {line['error']}".rstrip())
                attempts.append(attempt)
                self._ask(self._store.write)
                order = next_attempt(attempts, self._plan.bounds, earlier)
        except _Left as left:
            number = left.args[0]
            self._say(f"{signal.Signals(number).name}: the job goes on without this; {self._link}")
            return 128 + number
        if isinstance(order, Again) or (self._stop and order.exit_code):
            order = Over(why="stopped", exit_code=128 + self._stop)
        self._show_end(order, [*earlier, *attempts], line.get("error", ""))
        return order.exit_code

    def _unfinished(self) -> dict[str, Any]:
        """Returns the attempt of an earlier command that was left to itself, if there is one."""
        lines = self._store.lines
        if not lines or "ending" in lines[-1]:
            return {}
        job = self._ask(lambda: self._jobs.named(lines[-1]["display_name"]))
        if not job:  # The command ended before it had sent the request.
            lines.pop()
            return {}
        lines[-1]["name"] = job.name
        return lines[-1]

    def _is_done(self) -> bool:
        """Returns whether no job is needed, by our trainer's record, or else by the end of the last job."""
        goal = self._plan.trainer
        if goal and (done := self._store.done()):
            return done.covers(goal.train_steps, goal.train_epochs, goal.patience)
        attempts = self._store.attempts
        return bool(attempts) and attempts[-1].ending is Ending.SUCCEEDED

    def _submit(self, order: Again) -> dict[str, Any]:
        lines = self._store.lines
        name = f"{self._plan.name}-{len(lines) + 1}" if lines else self._plan.name
        line = self._ask(lambda: self._store.begin(name, self._plan.choices[order.choice], order))
        try:
            line["name"] = self._ask(lambda: self._jobs.create(self._plan.body(name, order))).name
        except NoCapacity as error:
            self._store.refuse(str(error))
        except UserError:
            with contextlib.suppress(UserError, ConnectionError):
                self._store.undo()
            raise
        return line

    def _follow(self, line: dict[str, Any]) -> Attempt:
        """Shows a job's states and log until it has ended, and records how."""
        name, job_id = line["display_name"], line["name"].rpartition("/")[2]
        place = f"locations/{self._plan.region}/training/{job_id}?project={self._plan.project}"
        self._link = f"https://console.cloud.google.com/vertex-ai/{place}"
        self._say(f"{name} on {', '.join(f'{role}: {what}' for role, what in line['machines'].items())}: {self._link}")
        logs = CloudLogs(self._plan.project, job_id, self._roles)
        state, ended_s = "", 0.0
        while True:
            job = self._ask(lambda: self._jobs.get(line["name"]), tries_again=False)
            self._ask(lambda: self._show(logs), tries_again=False)
            if job and job.state.name != state:
                state = job.state.name
                self._say(f"{name} is {state.removeprefix('JOB_STATE_').lower()}")
            if state in ENDED:
                is_late = job and (not job.end_time or (state == "JOB_STATE_FAILED" and not job.error.message))
                if job and ended_s >= (ERROR_S if is_late else LINES_S):
                    break
                ended_s += POLL_S
            elif self._stop and state != "JOB_STATE_CANCELLING":
                self._ask(lambda: self._jobs.cancel(line["name"]), tries_again=False)
            self._wait()
        return self._ask(lambda: self._store.complete([job]))

    def _show_end(self, order: Over, attempts: list[Attempt], error: str) -> None:
        step = max((attempt.step_after for attempt in attempts), default=-1)
        end = {"event": "end", "exit_code": order.exit_code, "why": order.why}
        end |= {"seconds": sum(attempt.seconds for attempt in attempts), "step": None if step < 0 else step}
        blamed = replica_name(error, self._roles)
        if attempts and attempts[-1].ending is Ending.FAILED and blamed and order.exit_code != 128 + self._stop:
            end |= {"replica": blamed, "ending": error, "log": self._link, "tail": list(self._tails.get(blamed, ()))}
        self._output.lines("launcher", end_message(end).splitlines())

    def _show(self, logs: CloudLogs) -> None:
        for replica, text in logs.new(self._jobs.session()):
            self._tails.setdefault(replica, collections.deque(maxlen=_TAIL)).append(text)
            self._output.lines(replica, [text])

    def _ask(self, call: Callable[[], Any], *, tries_again: bool = True) -> Any:
        """Returns what a call to Google Cloud returns; once there is a job to wait for, however long that takes.

        Args:
          call: Asks.
          tries_again: Whether it is called until it can be answered, or once, and None stands for no answer.
        """
        from google.api_core.exceptions import GoogleAPIError, NotFound
        from google.auth.exceptions import GoogleAuthError

        while True:
            try:
                return call()
            except (Taken, Refused):
                raise
            except NotFound as error:
                raise UserError(first_line(error)) from None
            except (GoogleAPIError, GoogleAuthError, OSError, UserError) as error:
                why = f"{type(error).__name__}: {first_line(error)}"
                if expired(error):
                    why = f"{why}; {LOGIN}"
                    log_in_again(self._plan.project)
                if not self._link:
                    if isinstance(error, UserError | ConnectionError):
                        raise
                    raise UserError(why) from None
                if why not in self._troubles:
                    self._troubles.add(why)
                    self._say(f"Google Cloud cannot be asked ({why}); the job goes on, and so does waiting for it")
            if not tries_again:
                return None
            self._wait()

    def _wait(self) -> None:
        """Waits until it is time to ask again, or a signal comes."""
        if not select.select([self._signals], [], [], POLL_S)[0]:
            return
        for number in received(self._signals):
            if self._request.is_repeated_by(number) or (number == signal.SIGHUP and not self._stop):
                raise _Left(number)
            if not self._stop:
                self._stop = number
                self._say(f"{signal.Signals(number).name}: stopping the replicas")

    def _say(self, text: str) -> None:
        self._output.lines("launcher", [text])

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

from common.errors import UserError
from components.train.backends.job_store import JobStore
from components.train.backends.vertex_client import ENDED, CloudLogs, Jobs, NoCapacity, Outages, replica_name
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
from trainer.job import done
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
        self._outages = Outages(plan.project, "the job", self._show)
        self._tails = collections.defaultdict[str, Any](lambda: collections.deque(maxlen=_TAIL))
        self._roles = list(plan.choices[0].pools)

    def run(self) -> int:
        """Goes on until the training is done or given up; returns the exit code."""
        self._store.load()
        order: Again | Over = Again(choice=0, timeout_s=None)
        is_running = bool(self._unfinished())
        earlier = self._store.attempts
        attempts: list[Attempt] = []
        if not is_running:
            is_done = self._is_done(earlier)
            order = Over(why="already done", exit_code=0) if is_done else first_attempt(self._plan.bounds, earlier)
        try:
            while isinstance(order, Again) and not self._request.number:
                line = self._unfinished() or self._submit(order)
                attempt = self._follow(line) if "name" in line else self._store.attempts[-1]
                took = f"after {attempt.seconds:.0f} s of its machines; newest checkpoint: {attempt.step_after}"
                self._show(f"{line['display_name']} {attempt.ending} {took}. {line['error']}".rstrip())
                attempts.append(attempt)
                self._patiently(self._store.write)
                order = next_attempt(attempts, self._plan.bounds, earlier)
        except _Left as left:
            number = left.args[0]
            self._show(f"{signal.Signals(number).name}: the job goes on without this; {self._link}")
            return 128 + number
        if isinstance(order, Again) or (self._request.number and order.exit_code):
            order = Over(why="stopped", exit_code=128 + self._request.number)
        self._show_end(order, [*earlier, *attempts])
        return order.exit_code

    def _unfinished(self) -> dict[str, Any]:
        """Returns the attempt of an earlier command that was left to itself, if there is one."""
        lines = self._store.lines
        if not lines or "ending" in lines[-1]:
            return {}
        job = self._jobs.named(lines[-1]["display_name"])
        if not job:  # The command ended before it had sent the request.
            lines.pop()
            return {}
        lines[-1]["name"] = job.name
        return lines[-1]

    def _is_done(self, attempts: list[Attempt]) -> bool:
        """Returns whether no job is needed, by our trainer's record, or else by the end of the last job."""
        goal = self._plan.trainer
        if goal and (record := done.load(self._plan.job_dir)):
            return record.covers(goal.train_steps, goal.train_epochs, goal.patience)
        return bool(attempts) and attempts[-1].ending is Ending.SUCCEEDED

    def _submit(self, order: Again) -> dict[str, Any]:
        """Returns the line of a new job; it has no `name` if there is no capacity for the job."""
        lines = self._store.lines
        name = f"{self._plan.name}-{len(lines) + 1}" if lines else self._plan.name
        line = self._patiently(lambda: self._store.begin(name, self._plan.choices[order.choice], order))
        try:
            line["name"] = self._patiently(lambda: self._jobs.create(self._plan.body(name, order))).name
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
        self._show(f"{name} on {', '.join(f'{role}: {what}' for role, what in line['machines'].items())}: {self._link}")
        logs = CloudLogs(self._plan.project, job_id, self._roles)
        state, ended_s = "", 0.0
        while True:
            with self._outages.tolerated():
                for replica, text in logs.new():
                    self._tails[replica].append(text)
                    self._output.lines(replica, [text])
            if self._request.number and state not in (*ENDED, "JOB_STATE_CANCELLING"):
                with self._outages.tolerated():
                    self._jobs.cancel(line["name"])
            with self._outages.tolerated():
                job = self._jobs.get(line["name"])
                if job.state.name != state:
                    state = job.state.name
                    self._show(f"{name} is {state.removeprefix('JOB_STATE_').lower()}")
                if state in ENDED:
                    is_late = not job.end_time or (state == "JOB_STATE_FAILED" and not job.error.message)
                    if ended_s >= (ERROR_S if is_late else LINES_S):
                        break
                    ended_s += POLL_S
            self._wait()
        return self._patiently(lambda: self._store.complete([job]))

    def _show_end(self, order: Over, attempts: list[Attempt]) -> None:
        step = max((attempt.step_after for attempt in attempts), default=-1)
        end = {"event": "end", "exit_code": order.exit_code, "why": order.why}
        end |= {"seconds": sum(attempt.seconds for attempt in attempts), "step": None if step < 0 else step}
        if attempts and attempts[-1].ending is Ending.FAILED and order.why != "stopped":
            error = self._store.lines[-1]["error"]
            if replica := replica_name(error, self._roles):
                end |= {"replica": replica, "ending": error, "log": self._link, "tail": list(self._tails[replica])}
        self._output.lines("launcher", end_message(end).splitlines())

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """Returns what a call to Google Cloud returns; once a job was followed, however long an outage takes."""
        while self._link:
            with self._outages.tolerated():
                return call()
            self._wait()
        return call()

    def _wait(self) -> None:
        """Waits until it is time to ask again, or a signal comes."""
        if not select.select([self._signals], [], [], POLL_S)[0]:
            return
        for number in received(self._signals):
            is_first = not self._request.number
            if self._request.is_repeated_by(number) or (number == signal.SIGHUP and is_first):
                raise _Left(number)
            if is_first:
                self._show(f"{signal.Signals(number).name}: stopping the replicas")

    def _show(self, text: str) -> None:
        self._output.lines("launcher", [text])

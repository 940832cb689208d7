"""A training on Vertex AI from its first job to its end: submitted, followed, and submitted again."""

import collections
import dataclasses
import functools
import json
import select
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any

from components.train.backends.attempts import (
    Again,
    Attempt,
    Bounds,
    JobStore,
    Over,
    first_attempt,
    next_attempt,
)
from components.train.backends.backend import Job
from components.train.backends.vertex_client import CloudLogs, Ending, Jobs, Outages, ending, replica_name
from components.train.supervision.launcher_log import end_message
from components.train.supervision.output import Output
from components.train.supervision.signals import StopRequest, received
from trainer.job import done

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
    job: Job  # Its directory is in a bucket.
    bodies: tuple[Mapping[str, Any], ...]  # By choice of machines, the request.
    bounds: Bounds

    def body(self, name: str, order: Again) -> dict[str, Any]:
        """Returns the request of an attempt."""
        body = self.bodies[order.choice]
        spec = body["jobSpec"]
        limit = {"timeout": f"{order.timeout_s}s"} if order.timeout_s else {}
        scheduling = {**spec["scheduling"], **limit}
        return {**body, "displayName": name, "jobSpec": {**spec, "scheduling": scheduling}}

    def to_json(self) -> str:
        """Returns the `jobSpec` of the first job."""
        return json.dumps(self.bodies[0]["jobSpec"], indent=2)


class _Left(Exception):
    """A signal asks to leave the job to itself; its argument is the number."""


class Training:
    """The jobs of one training, one after another."""

    def __init__(self, plan: Submission, output: Output, signals: socket.socket) -> None:
        self._plan, self._output, self._signals = plan, output, signals
        self._jobs, self._store = Jobs(plan.project, plan.region), JobStore(plan.job.program.job_dir)
        self._link = ""  # Where the console shows the job that runs; empty before there is one.
        self._request = StopRequest()
        self._outages = Outages(plan.project, "the job", self._show)
        self._tails = collections.defaultdict[str, Any](lambda: collections.deque(maxlen=_TAIL))
        self._roles = list(plan.job.cluster.pools)

    def run(self) -> int:
        """Goes on until the training is done or given up; returns the exit code."""
        store, bounds = self._store, self._plan.bounds
        store.load()
        order: Again | Over = Again(choice=0, timeout_s=None)
        is_running = bool(self._unfinished())
        num_earlier = len(store.attempts) - is_running
        if self._is_done():
            order = Over(why="already done", exit_code=0)
        elif not is_running:
            order = first_attempt(store.attempts, bounds)
        try:
            while isinstance(order, Again) and not self._request.number:
                attempt = self._patiently(self._begin, order)
                if not attempt.ending:
                    self._patiently(store.complete, [self._follow(attempt)])
                took = f"after {attempt.seconds:.0f} s of its machines; newest checkpoint: {attempt.step_after}"
                self._show(f"{attempt.display_name} {attempt.ending} {took}. {attempt.error}".rstrip())
                self._patiently(store.write, store.attempts)
                order = next_attempt(store.attempts, bounds, num_earlier)
        except _Left as left:
            number = left.args[0]
            self._show(f"{signal.Signals(number).name}: the job goes on without this; {self._link}")
            return 128 + number
        if isinstance(order, Again) or (self._request.number and order.exit_code):
            order = Over(why="stopped", exit_code=128 + self._request.number)
        self._show_end(order)
        return order.exit_code

    def _unfinished(self) -> Attempt | None:
        """Returns the attempt whose job goes on, or has ended unseen, if there is one."""
        attempts = self._store.attempts
        if not attempts or attempts[-1].ending:
            return None
        job = self._jobs.named(attempts[-1].display_name)
        if not job:  # The request was not sent.
            attempts.pop()
            return None
        attempts[-1].name = job.name
        return attempts[-1]

    def _is_done(self) -> bool:
        """Returns whether no job is needed, by our trainer's record, or else by the end of the last job."""
        attempts, program = self._store.attempts, self._plan.job.program
        if attempts and not attempts[-1].ending:
            return False
        goal = program.trainer
        if goal and (record := done.load(program.job_dir)):
            return record.covers(goal.train_steps, goal.train_epochs, goal.patience)
        return bool(attempts) and attempts[-1].ending is Ending.SUCCEEDED

    def _begin(self, order: Again) -> Attempt:
        """Returns the attempt whose job goes on, or else a new one, which has ended if there is no capacity for it."""
        if attempt := self._unfinished():
            return attempt
        plan, count = self._plan, len(self._store.attempts)
        name = f"{plan.name}-{count + 1}" if count else plan.name
        send = functools.partial(self._jobs.create, plan.body(name, order))
        return self._store.submit(name, plan.job.cluster.choices[order.choice], order, send)

    def _follow(self, attempt: Attempt) -> Any:
        """Shows a job's states and log until it has ended; returns the job."""
        name, job_id = attempt.display_name, attempt.name.rpartition("/")[2]
        place = f"locations/{self._plan.region}/training/{job_id}?project={self._plan.project}"
        self._link = f"https://console.cloud.google.com/vertex-ai/{place}"
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
        attempts = self._store.attempts
        step = max((attempt.step_after for attempt in attempts), default=-1)
        end = {"event": "end", "exit_code": order.exit_code, "why": order.why}
        end |= {"seconds": sum(attempt.seconds for attempt in attempts), "step": None if step < 0 else step}
        if attempts and attempts[-1].ending is Ending.FAILED and order.why != "stopped":
            error = attempts[-1].error
            if replica := replica_name(error, self._roles):
                end |= {"replica": replica, "ending": error, "log": self._link, "tail": list(self._tails[replica])}
        self._output.lines("launcher", end_message(end).splitlines())

    def _patiently(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Returns what a call to Google Cloud returns; once a job was followed, however long an outage takes."""
        while self._link:
            with self._outages.tolerated():
                return call(*arguments)
            self._wait()
        return call(*arguments)

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

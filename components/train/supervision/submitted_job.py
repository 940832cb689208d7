"""A training on Vertex AI from its first job to its end: submitted, followed, and submitted again as `attempts` decides.

    with signal_socket() as signals:
        exit_code = SubmittedJob(submission, output, signals).run()

SIGINT and SIGTERM cancel the job, whose replicas save, as they do with the other back ends. The job outlives this process:
SIGHUP, which a terminal sends that is closed, and a repeated signal only leave it, and so does SIGKILL. Whoever then gives
the same command for the same job directory follows the job that runs.
"""

import collections
import contextlib
import select
import signal
import socket
from collections.abc import Callable
from typing import Any

from google.api_core.exceptions import GoogleAPIError, NotFound
from google.auth.exceptions import GoogleAuthError

from common.errors import UserError, first_line
from common.google_cloud import LOGIN
from components.train.backends.attempts import Again, Attempt, Ending, Over, begin, decide
from components.train.backends.job_store import JobStore, Taken
from components.train.backends.vertex import Submission
from components.train.backends.vertex_client import ENDED, Jobs, NoCapacity, Refused, expired, log_in_again
from components.train.backends.vertex_logs import CloudLogs, replica_name
from components.train.supervision.output import Output
from components.train.supervision.signals import StopRequest, received

_POLL_S = 5.0  # Cloud Logging lets a project read 60 times a minute.
_LINES_S = 10.0  # After a job's end its last lines are still on their way,
_ERROR_S = 90.0  # and why it failed is told "about one minute" later.
_TAIL = 10


class _Left(Exception):
    """A signal asks to leave the job to itself; its argument is the number."""


class SubmittedJob:
    """One training: its jobs, one after another."""

    def __init__(self, submission: Submission, output: Output, signals: socket.socket) -> None:
        self._plan, self._output, self._signals = submission, output, signals
        self._jobs, self._store = Jobs(submission.project, submission.region), JobStore(submission.job_dir)
        self._link = ""  # Where the console shows the job that runs; empty before there is one.
        self._request = StopRequest()
        self._stop = 0  # The signal that asked for the job's end.
        self._troubles: set[str] = set()  # Why Google Cloud could not be asked, as it was shown.
        self._tails: dict[str, collections.deque[str]] = {}
        self._roles = list(submission.choices[0].pools)

    def run(self) -> int:
        """Goes on until the training is done or given up; returns the exit code."""
        self._ask(self._store.load)
        unfinished = line = self._unfinished()
        earlier = self._store.attempts
        attempts: list[Attempt] = []
        order: Again | Over = Again(choice=0, timeout_s=None)
        if not unfinished:
            is_done = self._ask(self._is_done)
            order = Over(why="already done", exit_code=0) if is_done else begin(self._plan.bounds, earlier)
        try:
            while isinstance(order, Again) and not self._stop:
                line = unfinished or self._submit(order)
                unfinished = {}
                attempt = self._follow(line) if "name" in line else self._store.attempts[-1]
                took = f"after {attempt.seconds:.0f} s of its machines; newest checkpoint: {attempt.step_after}"
                self._say(f"{line['display_name']} {attempt.ending} {took}. {line['error']}".rstrip())
                attempts.append(attempt)
                self._ask(self._store.write)
                order = decide(attempts, self._plan.bounds, earlier)
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
        goal = self._plan.goal
        if goal and (done := self._store.done()):
            return done.covers(*goal)
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
        """Shows a job's states and log until it has ended, and notes how."""
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
                if job and ended_s >= (_ERROR_S if is_late else _LINES_S):
                    break
                ended_s += _POLL_S
            elif self._stop and state != "JOB_STATE_CANCELLING":
                self._ask(lambda: self._jobs.cancel(line["name"]), tries_again=False)
            self._wait()
        return self._ask(lambda: self._store.complete([job]))

    def _show_end(self, order: Over, attempts: list[Attempt], error: str) -> None:
        seconds = sum(each.seconds for each in attempts)
        step = max((each.step_after for each in attempts), default=-1)
        end = {"event": "end", "exit_code": order.exit_code, "why": order.why, "seconds": seconds}
        end["step"] = None if step < 0 else step
        blamed = replica_name(error, self._roles)
        if attempts and attempts[-1].ending is Ending.FAILED and blamed and order.exit_code != 128 + self._stop:
            end |= {"replica": blamed, "ending": error, "log": self._link, "tail": list(self._tails.get(blamed, ()))}
        self._output.event(end)

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
        """Waits until it is time to look again, or a signal comes."""
        if not select.select([self._signals], [], [], _POLL_S)[0]:
            return
        for number in received(self._signals):
            if self._request.is_repeated_by(number) or (number == signal.SIGHUP and not self._stop):
                raise _Left(number)
            if self._stop:
                continue
            self._stop = number
            self._say(f"{signal.Signals(number).name}: stopping the replicas")

    def _say(self, text: str) -> None:
        self._output.lines("launcher", [text])

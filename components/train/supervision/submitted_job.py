"""A training on Vertex AI from its first job to its end: submitted, followed, and submitted again as `attempts` decides.

    with signal_socket() as signals:
        exit_code = SubmittedJob(submission, output, signals).run()

SIGINT and SIGTERM cancel the job, whose replicas save, as they do with the other back ends. The job outlives this process:
SIGHUP, which a terminal sends that is closed, and a second signal only leave it, and so does SIGKILL. Whoever then gives
the same command for the same job directory follows the job that runs.
"""

import collections
import contextlib
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

from google.api_core.exceptions import GoogleAPIError, NotFound
from google.auth.exceptions import GoogleAuthError

from components.bucket import LOGIN
from components.train.backends.vertex.attempts import Again, Attempt, Ending, Over, decide
from components.train.backends.vertex.cloud_logs import CloudLogs, replica_name
from components.train.backends.vertex.custom_job import Submission
from components.train.backends.vertex.job_client import Jobs, NoCapacity, expired, log_in_again
from components.train.backends.vertex.job_store import RECORD, JobStore, Taken, begun, completed, refused
from components.train.supervision.output import Output
from trainer.base.errors import UserError, first_line

_POLL_S = 5.0  # Cloud Logging lets a project read 60 times a minute.
_LINES_S = 10.0  # After a job's end its last lines are still on their way,
_ERROR_S = 90.0  # and why it failed is told "about one minute" later.
_TAIL = 10
_ENDED = {f"JOB_STATE_{each}" for each in ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")}
_T = TypeVar("_T")


class _Left(Exception):
    """A signal asks to leave the job to itself; its argument is the number."""


class SubmittedJob:
    """One training: its jobs, one after another."""

    def __init__(self, submission: Submission, output: Output, signals: socket.socket) -> None:
        self._plan, self._output, self._signals = submission, output, signals
        self._jobs, self._store = Jobs(submission.project, submission.region), JobStore(submission.job_dir)
        self._waits = False  # Whether a job is there, for whose sake one waits while nothing can be asked.
        self._stop = 0  # The signal that asked for the job's end.
        self._failing: dict[str, str] = {}  # By who cannot be asked, why not, as it was told.
        self._tails: dict[str, collections.deque[str]] = {}
        self._roles = list(submission.choices[0].pools)

    def run(self) -> int:
        """Goes on until the training is done or given up; returns the exit code."""
        record, made = self._patiently("the bucket", self._store.attempts), list[Attempt]()
        line: dict[str, Any] = {}
        try:
            while isinstance(order := decide(made, self._plan.bounds), Again) and not self._stop:
                line = (not made and self._begun(record)) or self._submit(order, record)
                attempt = self._follow(line) if "name" in line else refused(line)
                self._say_attempt(line, attempt)
                made.append(attempt)
                self._patiently("the bucket", lambda: self._store.write(record) or True)
        except _Left as left:
            number, link = left.args[0], self._link(line["name"]) if "name" in line else ""
            self._say("left", signal=signal.Signals(number).name, link=link)
            return 128 + number
        hours = sum(each.machine_hours for each in made)
        self._say("spending", attempts=len(made), machine_hours=hours, record=f"{self._plan.job_dir}/{RECORD}")
        return self._over(order, made, line)

    def _begun(self, record: list[dict[str, Any]]) -> dict[str, Any]:
        """The attempt of an earlier command that was left to itself, if there is one."""
        if not record or "ending" in record[-1]:
            return {}
        job = self._patiently("Vertex AI", lambda: [self._jobs.named(record[-1]["display_name"])])[0]
        if not job:  # The command ended before it had sent the request.
            record.pop()
            return {}
        record[-1]["name"] = job.name
        return record[-1]

    def _submit(self, order: Again, record: list[dict[str, Any]]) -> dict[str, Any]:
        number = len(record) + 1
        name = f"{self._plan.name}-{number}" if record else self._plan.name
        step = self._patiently("the bucket", self._store.step)
        line = begun(name, self._plan.choices[order.choice], order, step)
        record.append(line)
        self._patiently("the bucket", lambda: self._store.write(record) or True)  # First: of two commands one goes on.
        try:
            line["name"] = self._jobs.create(self._plan.body(name, order)).name
        except NoCapacity as error:
            line["error"] = str(error)
            return line  # without a name: there is no job
        except UserError:
            record.pop()
            with contextlib.suppress(UserError):
                self._store.write(record)
            raise
        machines = ", ".join(f"{role}: {what}" for role, what in line["machines"].items())
        about = {"choice": order.choice, "machines": machines, "timeout_s": order.timeout_s}
        self._say("submitted", job=name, link=self._link(line["name"]), **about)
        return line

    def _follow(self, line: dict[str, Any]) -> Attempt:
        """Shows a job's states and log until it has ended, and notes how."""
        self._waits = True
        logs = CloudLogs(self._plan.project, line["name"].rpartition("/")[2], self._roles)
        state, ended_s = "", 0.0
        while True:
            job = self._try("Vertex AI", lambda: self._jobs.get(line["name"]))
            self._try("Cloud Logging", lambda: self._show(logs))
            if job and job.state.name != state:
                state = job.state.name
                self._say("state", job=line["display_name"], state=state.removeprefix("JOB_STATE_").lower())
            if state in _ENDED:
                late = job and (not job.end_time or (state == "JOB_STATE_FAILED" and not job.error.message))
                if job and ended_s >= (_ERROR_S if late else _LINES_S):
                    break
                ended_s += _POLL_S
            elif self._stop and state != "JOB_STATE_CANCELLING":
                self._try("Vertex AI", lambda: self._jobs.cancel(line["name"]))
            self._wait()
        return completed(line, job, self._patiently("the bucket", self._store.step))

    def _say_attempt(self, line: dict[str, Any], attempt: Attempt) -> None:
        step = None if attempt.step_after < 0 else attempt.step_after
        ended = {"ending": attempt.ending, "error": line["error"], "seconds": attempt.seconds, "step": step}
        self._say("attempt", job=line["display_name"], **ended)

    def _over(self, order: Any, made: list[Attempt], line: dict[str, Any]) -> int:
        """Says how the training ended; returns the exit code."""
        if self._stop and not (isinstance(order, Over) and order.exit_code == 0):
            order = Over(why="stopped", exit_code=128 + self._stop)
        seconds, step = sum(each.seconds for each in made), max((each.step_after for each in made), default=-1)
        if order.exit_code == 0:
            found = self._patiently("the bucket", self._store.done)
            figures = [f"{name} {value:,.4g}" for name, value in found.items() if isinstance(value, int | float)]
            self._output.lines("launcher", [", ".join(figures)] if figures else [])
        told = {"exit_code": order.exit_code, "why": order.why, "seconds": seconds, "step": None if step < 0 else step}
        blamed = replica_name(line.get("error", ""), self._roles)
        if made and made[-1].ending is Ending.FAILED and blamed and order.exit_code != 128 + self._stop:
            told |= {"replica": blamed, "ending": line["error"], "log": self._link(line["name"])}
            told["tail"] = list(self._tails.get(blamed, ()))
        self._say("end", **told)
        return order.exit_code

    def _show(self, logs: CloudLogs) -> bool:
        for replica, text in logs.new(self._jobs.session()):
            self._tails.setdefault(replica, collections.deque(maxlen=_TAIL)).append(text)
            self._output.lines(replica, [text])
        return True

    def _patiently(self, who: str, call: Callable[[], _T]) -> _T:
        """What a call returns, however long it takes until it can be made."""
        while (found := self._try(who, call)) is None:
            self._wait()
        return found

    def _try(self, who: str, call: Callable[[], _T]) -> _T | None:
        """What a call returns; None if it could not be made, which is told when the reason is another than before."""
        try:
            found = call()
        except (NotFound, Taken) as error:
            raise UserError(first_line(error)) from None
        except (GoogleAPIError, GoogleAuthError, OSError, UserError) as error:
            why = f"{type(error).__name__}: {first_line(error)}"
            if expired(error):
                why = f"{why}; {LOGIN}"
                log_in_again(self._plan.project)
            if not self._waits:
                raise UserError(why) from None
            if self._failing.get(who) != why:
                self._failing[who] = why
                self._say("waiting", who=who, why=why)
            return None
        self._failing.pop(who, None)
        return found

    def _wait(self) -> None:
        """Until it is time to look again, or a signal comes."""
        if not select.select([self._signals], [], [], _POLL_S)[0]:
            return
        number = self._signals.recv(1)[0]
        if self._stop or number == signal.SIGHUP:
            raise _Left(number)
        self._stop = number
        self._say("stop", signal=signal.Signals(number).name, again=False)

    def _link(self, name: str) -> str:
        """Where the console shows a job."""
        place = f"locations/{self._plan.region}/training/{name.rpartition('/')[2]}"
        return f"https://console.cloud.google.com/vertex-ai/{place}?project={self._plan.project}"

    def _say(self, event: str, **fields: Any) -> None:
        self._output.event({"event": event, "time": round(time.time(), 3), **fields})

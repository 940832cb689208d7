"""Runs a plan: starts the replicas, watches them, starts them again after a failure, and reports what happened.

    with Output() as output:
        exit_code = run(plan, output)

`restart_policy` decides who starts again when a replica dies, and when it is enough; `health` when
one is taken for frozen. A signal to this process stops every replica; nothing outlives it, be it
killed by SIGKILL, and it does not outlive the process that `PIPELINE_OWNER_PID` names.
"""

import contextlib
import dataclasses
import functools
import math
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

from common import lifeline
from common.errors import UserError
from common.guard import MARK, Guard, kill_marked
from common.storage.storage import is_remote
from components.train.supervision.health import Patience
from components.train.supervision.launcher_log import end_message, failure_message, recording
from components.train.supervision.lock import leased, locked
from components.train.supervision.output import Output
from components.train.supervision.plan import Plan, Replica
from components.train.supervision.replica import Child, ending
from components.train.supervision.restart_policy import (
    KILLED,
    SAVED,
    TIMED_OUT,
    Budget,
    Follows,
    Kind,
    decide,
)
from components.train.supervision.signals import StopRequest, received, signal_socket

_TICK_S = 0.05
_DEFAULTS = Patience()


def run(plan: Plan, output: Output, patience: Patience = _DEFAULTS) -> int:
    """Runs the job to its end; to be called from the main thread. After a `UserError` no replica runs.

    Returns:
      0 after the chief's success; the exit code of the replica that failed first, 128+n if signal n
      killed it, when it cannot be started again; 128+n if signal n stopped this process, and
      `KILLED` if not all was saved then.
    """
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(locked(plan.records_dir))
            record = stack.enter_context(recording(plan.records_dir))
            os.makedirs(plan.log_dir, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot write to {error.filename or plan.records_dir}: {error.strerror}"
            ) from None
        if is_remote(plan.job_dir):
            stack.enter_context(leased(plan.job_dir))
        signals = stack.enter_context(signal_socket())
        guard = Guard(lock, teardown=plan.teardown)
        job = _Job(plan, patience, output, record, guard, signals)
        stack.callback(job.reap)
        stack.enter_context(contextlib.closing(guard))
        if owner := lifeline.owner_pid(os.environ):
            # The guard does the rest.
            lifeline.watch(owner, lambda: os.kill(os.getpid(), signal.SIGKILL))
        environ = {**os.environ, MARK: guard.mark("setup")}
        for command in plan.setup:
            process = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ
            )
            if process.returncode:
                lines = process.stderr.strip().splitlines() or [
                    f"{command[0]}: {ending(process.returncode)}"
                ]
                raise UserError(lines[-1])
        try:
            return job.run()
        except UserError as error:
            record("end", str(error), exit_code=2)
            raise


@dataclasses.dataclass
class _Job:
    """The replicas of one job, and what has happened so far.

    Everything happens in one thread, in the callbacks of a selector.
    """

    plan: Plan
    patience: Patience
    output: Output
    record: Callable[..., None]
    guard: Guard
    signals: socket.socket

    def __post_init__(self) -> None:
        # Callbacks by file descriptor. epoll reports ends of processes in the order in which they
        # came, however late it is called: the order of blame is the order of death.
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.signals, selectors.EVENT_READ, self._on_signals)
        self._children: dict[str, Child] = {}  # The newest start of each.
        self._restartable = [replica.name for replica in self.plan.replicas]
        self._due = dict.fromkeys(self._restartable, 0.0)  # To be started, and when.
        self._blamed: Child | None = (
            None  # Because of which all are being stopped, to start again or to end.
        )
        self._budgets = {"job": Budget(), "evaluator": Budget()}
        self._ending: dict[str, Any] = {}  # Why the job ends, once it does.
        self._request = StopRequest()
        self._began = self._check_at = time.monotonic()
        self._time_out_at = self._began + (self.plan.timeout_s or math.inf)

    def run(self) -> int:
        """Starts every replica, and waits until none is left; returns the job's exit code."""
        logs = [
            {"replica": r.name, "log": os.path.abspath(r.log), "status": r.status}
            for r in self.plan.replicas
        ]
        message = "\n".join(
            [f"starting {len(logs)} replicas; logs in {self.plan.log_dir}", *self.plan.notes]
        )
        self._report("start", message, pid=os.getpid(), replicas=logs)
        while self._running() or self._due:
            for key, _ in self._selector.select(_TICK_S):
                key.data()
            for child in self._running():
                if child.pidfd is None and child.process.poll() is not None:
                    self._on_end(child)
                else:
                    child.signal_if_due()
            now = time.monotonic()
            for replica in self.plan.replicas:
                if self._due.get(replica.name, math.inf) <= now:
                    del self._due[replica.name]
                    self._start(replica)
            if now >= self._check_at:
                self._check(now)
        self._note_kills()
        seconds = round(time.monotonic() - self._began, 3)
        fields = {**self._ending, "step": self._budgets["job"].step, "seconds": seconds}
        self._report("end", end_message(fields), **fields)
        return fields["exit_code"]

    def reap(self) -> None:
        """Collects replicas that the guard had to kill because the job could not go on."""
        for child in self._running():
            child.process.wait()
        self._selector.close()

    def _running(self) -> list[Child]:
        return [child for child in self._children.values() if child.exit_code is None]

    def _start(self, replica: Replica) -> None:
        before = self._children.get(replica.name)
        child = Child(replica, before.attempt + 1 if before else 0, self.guard)
        self._children[replica.name] = child
        self.output.follow(replica.name, replica.log, child.log_start)
        if child.pidfd is not None:
            self._selector.register(
                child.pidfd, selectors.EVENT_READ, functools.partial(self._on_end, child)
            )
        self._report("up", replica=replica.name, attempt=child.attempt, pid=child.process.pid)

    def _on_signals(self) -> None:
        for number in received(self.signals):
            name = signal.Signals(number).name
            is_first = not self._request.number
            if self._request.is_repeated_by(number):
                self._stop_all(f"{name} again", 128 + number, grace_period_s=0)
            elif is_first:
                self._stop_all(
                    f"told to stop by {name}", 128 + number, self.patience.grace_period_s
                )

    def _stop_all(self, why: str, exit_code: int, grace_period_s: float) -> None:
        """Has all save and end within the grace period, and nobody start again."""
        self._report(
            "stop", f"{why}: {'stopping' if grace_period_s else 'killing'} the replicas", why=why
        )
        self._finish(grace_period_s, why=why, exit_code=exit_code)

    def _note_kills(self) -> None:
        """Replaces an exit code that means "saved" where a replica had to be killed meanwhile."""
        exit_code = self._ending["exit_code"]
        killed = ", ".join(name for name, child in self._children.items() if child.is_killed)
        if killed and exit_code and (exit_code == SAVED or "replica" not in self._ending):
            why = f"{self._ending['why']}, but {killed} had to be killed and may not have saved"
            why += f"; the grace period is {self.patience.grace_period_s:g} s (--grace-period-s)"
            self._ending |= {"why": why, "exit_code": KILLED}

    def _finish(self, grace_period_s: float, **ending: Any) -> None:
        """Has all end, and nobody start again; the first cause is the one that counts."""
        self._ending = self._ending or ending
        self._due.clear()
        self._time_out_at = math.inf
        for child in self._running():
            child.stop(0, grace_period_s)

    def _on_end(self, child: Child) -> None:
        """Handles the end of a replica's process."""
        if child.pidfd is not None:
            self._selector.unregister(child.pidfd)
            os.close(child.pidfd)
        name = child.replica.name
        child.finish()
        now = time.monotonic()
        self._read_status(child, now)
        seconds = round(now - child.started, 3)
        self.output.end_line(name)
        self._report(
            "down",
            f"{name} ended: {child.ending} after {seconds:.1f} s",
            replica=name,
            attempt=child.attempt,
            ending=child.ending,
            exit_code=child.exit_code,
            seconds=seconds,
        )
        if self._ending:
            return
        if (
            child.frozen or not child.is_signalled
        ):  # Who ends after another signal of ours is not to blame.
            self._on_death(child)
        if self._blamed and not self._running():
            blamed, self._blamed = self._blamed, None
            self._restart(blamed, self._restartable)

    def _on_death(self, child: Child) -> None:
        """Decides what follows when a replica has ended by itself, or was killed as frozen."""
        role, patience = child.replica.role, self.patience
        if self._blamed:
            # The client of a replica elsewhere may report a kill later than others report what it
            # did to them; and the peers of one that is stopped give up before it is found.
            is_cause = child.frozen or (child.kind is Kind.PREEMPTION and child.exit_code != SAVED)
            if (
                is_cause
                and role != "evaluator"
                and self._blamed.kind is Kind.ERROR
                and not self._blamed.frozen
            ):
                self._blamed = child
            return
        match decide(role, self.plan.strategy, child.exit_code):
            case Follows.DONE:
                may_go_on_s = {"evaluator": patience.evaluator_s}
                if self.plan.strategy != "parameter_server":
                    may_go_on_s["worker"] = patience.join_s
                self._ending = {"why": "done", "exit_code": 0}
                self._due.clear()
                for other in self._running():
                    other.stop(may_go_on_s.get(other.replica.role, 0), patience.failure_s)
            case Follows.RESTART_ONE:
                self._restart(child, [child.replica.name])
            case Follows.RESTART_ALL:
                self._blamed = child
                self._due.clear()
                for other in self._running():
                    if child.kind is Kind.ERROR and other.vitals.stopped:
                        self._kill(other, "stopped")
                    elif child.exit_code == SAVED:
                        other.stop(0, patience.grace_period_s)
                    else:
                        other.stop(patience.report_delay_s, patience.failure_s)

    def _restart(self, child: Child, names: list[str]) -> None:
        """Starts replicas again after the death of one, or ends the job, or goes on without its evaluator."""
        replica, most = child.replica, self.plan.max_restarts
        budget, why = self._budgets[replica.group].charged(
            child.kind, child.exit_code, most, reports=self.plan.reports
        )
        self._budgets[replica.group] = budget
        fields = {
            "replica": replica.name,
            "ending": child.ending,
            "exit_code": child.exit_code,
            "why": why,
        }
        fields |= {"log": replica.log, "tail": child.tail()}
        self._report("blame", failure_message(fields), **fields, kind=child.kind, step=budget.step)
        if not why:
            kill_marked(*map(self.guard.mark, names))
            self._due |= dict.fromkeys(names, time.monotonic() + budget.backoff_s)
            wait = f" in {budget.backoff_s:.1f} s" if budget.backoff_s else ""
            counts = f"errors: {budget.errors}, after preemptions: {budget.preemptions}"
            message = (
                f"starting {', '.join(names)} again{wait}; restarts after {counts} (of {most} each)"
            )
            used = {"errors": budget.errors, "preemptions": budget.preemptions}
            self._report("restart", message, replicas=names, after=child.kind, **used)
        elif replica.role == "evaluator":
            self._restartable.remove(replica.name)
        else:
            self._finish(self.patience.failure_s, **fields)

    def _check(self, now: float) -> None:
        """Checks the time limit and all that run, and kills one that is frozen."""
        self._check_at = now + self.patience.check_s
        if now >= self._time_out_at:
            why = f"ended by its time limit (scheduling.timeout: {self.plan.timeout_s} s)"
            self._stop_all(why, TIMED_OUT, self.patience.grace_period_s)
        # The first that fell silent is to blame: the others may only wait for it, as long as it
        # takes to die too.
        for child in sorted(
            self._running(), key=lambda child: (child.vitals.changed, child.started)
        ):
            self._read_status(child, now)
            why = child.vitals.frozen(now, self.patience, reports=self.plan.reports)
            if why and not self._ending and not self._blamed:
                if not child.frozen:
                    self._kill(child, why)
                break

    def _kill(self, child: Child, why: str) -> None:
        """Kills a replica that is taken for frozen; what follows is decided at its end."""
        name = child.replica.name
        self._report("frozen", f"{name} is frozen ({why}); killing it", replica=name, why=why)
        child.frozen = why
        child.signal(signal.SIGKILL)

    def _read_status(self, child: Child, now: float) -> None:
        child.vitals.read(now)
        group = child.replica.group
        self._budgets[group] = self._budgets[group].noted(child.vitals.step)

    def _report(self, event: str, message: str = "", **fields: Any) -> None:
        self.record(event, message, **fields)
        self.output.lines("launcher", message.splitlines())

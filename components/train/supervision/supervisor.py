"""Runs a plan: starts, watches and restarts the replicas, and reports what happened.

    with Output() as output:
        exit_code = run(plan, output)

`restart_policy` decides which replicas start again when one dies, and when to give up. `health`
decides when a replica counts as frozen. A signal to this process stops all replicas. No replica
outlives this process, even if it is killed by SIGKILL, and this process does not outlive the one
that `PIPELINE_OWNER_PID` names.
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
    """Runs a job to its end. It must be called from the main thread.

    Its events are appended to `launcher.jsonl` in `plan.records_dir`.

    Args:
      plan: Plan of the job.
      output: Shows the output of the replicas and the messages of the launcher.
      patience: Time limits for the replicas.

    Returns:
      The exit code of the job:

      * 0 after the chief's success;
      * if a replica failed and cannot be started again, its exit code, or 128+n if signal n killed
        it;
      * 128+n if signal n stopped this process, and 124 after the plan's time limit;
      * 137 instead of 128+n, 124, or the 143 of a replica if a replica had to be killed then, and
        may not have saved.

    Raises:
      UserError: If another launcher works on the job directory, a directory cannot be written, a
        bucket refuses a request, a command of `plan.setup` fails, or a replica cannot be started.
        No replica runs then.
      ConnectionError: If the job directory is in a bucket that does not answer.
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
        lifeline.follow_owner()  # If it ends this process, the guard removes the replicas.
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
    """The replicas of one job, and what has happened to them so far.

    Everything happens in one thread, in the callbacks of a selector and in the loop of `run`.

    Attributes:
      plan: Plan of the job.
      patience: Time limits for the replicas.
      output: Shows the output of the replicas and the messages of the launcher.
      record: Appends an event to the launcher's log, as `launcher_log.recording` describes it.
      guard: Guard of the job.
      signals: Socket with the signals to this process.
    """

    plan: Plan
    patience: Patience
    output: Output
    record: Callable[..., None]
    guard: Guard
    signals: socket.socket

    def __post_init__(self) -> None:
        # The selector has a callback for each file descriptor. epoll reports the ends of processes
        # in the order in which they happened, even if it is called late, so the replica that died
        # first is blamed.
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.signals, selectors.EVENT_READ, self._on_signals)
        # The newest start of each replica, by its name.
        self._children: dict[str, Child] = {}
        # Replicas that start again when all do: all but an evaluator that has been given up.
        self._restartable = [replica.name for replica in self.plan.replicas]
        # Monotonic times at which replicas are to be started, by their names.
        self._due = dict.fromkeys(self._restartable, 0.0)
        # The replica whose failure is the reason for which all others are being stopped. When they
        # have ended, all start again or the job ends.
        self._blamed: Child | None = None
        self._budgets = {"job": Budget(), "evaluator": Budget()}  # By `Replica.group`.
        # Fields of the event `end`; empty until it is decided that the job ends.
        self._ending: dict[str, Any] = {}
        self._request = StopRequest()
        self._began = self._check_at = time.monotonic()
        self._time_out_at = self._began + (self.plan.timeout_s or math.inf)

    def run(self) -> int:
        """Starts all replicas, and returns the job's exit code when none is left to run.

        Raises:
          UserError: If a replica cannot be started. Others may still run then.
        """
        logs = [
            {"replica": r.name, "log": os.path.abspath(r.log), "status": r.status}
            for r in self.plan.replicas
        ]
        message = "\n".join(
            [
                f"starting {len(logs)} replica{'s' * (len(logs) > 1)}; logs in {self.plan.log_dir}",
                *self.plan.notes,
            ]
        )
        self._report("start", message, pid=os.getpid(), replicas=logs)
        while self._running() or self._due:
            for key, _ in self._selector.select(_TICK_S):
                key.data()
            for child in self._running():
                # Without pidfds (not Linux) the selector does not report the ends of processes.
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
        """Waits for replicas that the guard has killed after an error of this launcher."""
        for child in self._running():
            child.process.wait()
        self._selector.close()

    def _running(self) -> list[Child]:
        return [child for child in self._children.values() if not child.ending]

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
        """Stops the job: all replicas may save and end within the grace period, and none restarts.

        Args:
          why: Reason, for people.
          exit_code: Exit code of the job, unless it was already ending.
          grace_period_s: Seconds from SIGTERM to SIGKILL; with 0 the replicas are killed at once.
        """
        self._report(
            "stop", f"{why}: {'stopping' if grace_period_s else 'killing'} the replicas", why=why
        )
        self._finish(grace_period_s, why=why, exit_code=exit_code)

    def _note_kills(self) -> None:
        """Sets the exit code to 137 if a stopped job may not have saved.

        That is so if a replica had to be killed after a stop request, after the time limit, or
        after another replica had ended with 143 (saved) and could not be started again.
        """
        exit_code = self._ending["exit_code"]
        killed = ", ".join(name for name, child in self._children.items() if child.is_killed)
        if killed and exit_code and (exit_code == SAVED or "replica" not in self._ending):
            why = f"{self._ending['why']}, but {killed} had to be killed and may not have saved"
            why += f"; the grace period is {self.patience.grace_period_s:g} s (--grace-period-s)"
            self._ending |= {"why": why, "exit_code": KILLED}

    def _finish(self, grace_period_s: float, **ending: Any) -> None:
        """Ends the job: stops all replicas, without waiting for them, and starts none again.

        Args:
          grace_period_s: Seconds from SIGTERM to SIGKILL.
          **ending: Fields of the event `end`. They are ignored if the job was already ending.
        """
        self._ending = self._ending or ending
        self._due.clear()
        self._time_out_at = math.inf
        for child in self._running():
            child.stop(0, grace_period_s)

    def _on_end(self, child: Child) -> None:
        """Handles the end of a replica's process.

        A replica that this launcher has signalled is not to blame, unless it was killed as frozen.
        """
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
        if child.frozen or not child.is_signalled:
            self._on_death(child)
        if self._blamed and not self._running():
            blamed, self._blamed = self._blamed, None
            self._restart(blamed, self._restartable)

    def _on_death(self, child: Child) -> None:
        """Handles the end of a replica that ended by itself, or was killed as frozen.

        While the others are being stopped because of another failure, this changes at most which
        replica is blamed. Otherwise this does what `decide` returns: nothing, after exit code 0 of
        any replica but the chief; stop the others, as the job is done; start the replica again
        alone; or stop all others for a restart of all.
        """
        role, patience = child.replica.role, self.patience
        if self._blamed:
            # A later end may be the cause of the one that is blamed. The client of a replica on
            # another host may report its kill later than other replicas fail because of it, and
            # the peers of a stopped replica give up before it is found to be frozen.
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
        """Charges the end of a replica to its budget, and schedules the start of replicas.

        If the budget allows no restart, as after a user error, ends the job instead, or continues
        without the evaluator.

        Args:
          child: Replica that is to blame.
          names: Names of the replicas to start again.
        """
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
            "log": replica.log,
            "tail": child.tail(),
        }
        # What ends the job is said with its last lines, once all replicas have ended.
        is_final = why and replica.role != "evaluator"
        message = "" if is_final else failure_message(fields)
        self._report("blame", message, **fields, kind=child.kind, step=budget.step)
        if not why:
            # Processes that the replicas have left behind could disturb the new start.
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
        """Checks the time limit, and kills a replica that is frozen.

        Of several frozen ones it kills only the one that was silent for longest. None is killed
        while the job ends, all are stopped for a restart, or the end of a killed one is awaited.
        """
        self._check_at = now + self.patience.check_s
        if now >= self._time_out_at:
            why = f"ended by its time limit (scheduling.timeout: {self.plan.timeout_s} s)"
            self._stop_all(why, TIMED_OUT, self.patience.grace_period_s)
        # Only the frozen replica that has been silent for longest is killed. Others may be silent
        # because they wait for it, so none of them is killed while its end is still awaited.
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
        """Kills a replica that counts as frozen; its end is then handled as a failure.

        Args:
          child: Replica to kill.
          why: Reason why it counts as frozen, for people.
        """
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

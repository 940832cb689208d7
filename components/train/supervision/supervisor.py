"""Runs a plan: starts the replicas, watches them, starts them again after a failure, and reports what happened.

    with Output() as output:
        exit_code = run(plan, output)

`restart_policy` decides who starts again when a replica dies, and when it is enough; `health` when one is taken for frozen.
A signal to this process stops every replica; nothing outlives it, be it killed by SIGKILL, and it does not outlive the
process that `PIPELINE_OWNER_PID` names.
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
from collections.abc import Sequence

from common import lifeline
from common.errors import UserError
from common.storage.storage import is_remote
from components.train.supervision.health import Patience
from components.train.supervision.launcher_log import Record
from components.train.supervision.lock import leased, locked
from components.train.supervision.output import Output
from components.train.supervision.plan import Plan, Replica
from components.train.supervision.reaper import MARK, Guard, kill_marked
from components.train.supervision.replica import Child
from components.train.supervision.restart_policy import (
    KILLED,
    SAVED,
    TIMED_OUT,
    Death,
    Gone,
    Order,
    State,
    Stop,
    decide,
)
from components.train.supervision.signals import StopRequest, ending, received, signal_socket

_TICK_S = 0.05
_DEFAULTS = Patience()


def run(plan: Plan, output: Output, patience: Patience = _DEFAULTS) -> int:
    """Runs the job to its end; to be called from the main thread. After a `UserError` no replica runs.

    Returns:
      0 after the chief's success; the exit code of the replica that failed first, 128+n if signal n killed it, when it
      cannot be started again; 128+n if signal n stopped this process, and `KILLED` if not all was saved then.
    """
    owner = lifeline.owner_pid(os.environ)
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(locked(plan.records_dir))
            record = stack.enter_context(contextlib.closing(Record(plan.records_dir)))
            os.makedirs(plan.log_dir, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write to {error.filename or plan.records_dir}: {error.strerror}") from None
        if is_remote(plan.job_dir):
            stack.enter_context(leased(plan.job_dir))
        signals = stack.enter_context(signal_socket())
        guard = Guard(lock, plan.teardown)
        job = _Job(plan, patience, output, record, guard, signals)
        stack.callback(job.reap)
        stack.enter_context(contextlib.closing(guard))
        if owner:
            # The guard does the rest.
            lifeline.watch(owner, lambda: os.kill(os.getpid(), signal.SIGKILL))
        for command in plan.setup:
            _prepare(command, guard.mark("setup"))
        try:
            return job.run()
        except UserError as error:
            record.add("end", exit_code=2, why=str(error))
            raise


def _prepare(command: Sequence[str], mark: str) -> None:
    """Runs a command before the job; if it fails, its last line on standard error is the `UserError`."""
    environ = {**os.environ, MARK: mark}
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ)
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"{command[0]}: {ending(process.returncode)}"]
        raise UserError(lines[-1].removeprefix("error: "))


class _Job:
    """The replicas of one job, and what has happened so far.

    Everything happens in one thread, in the callbacks of a selector.
    """

    def __init__(
        self, plan: Plan, patience: Patience, output: Output, record: Record, guard: Guard, signals: socket.socket
    ) -> None:
        self._plan, self._patience, self._output, self._record = plan, patience, output, record
        self._guard, self._signals = guard, signals
        # Callbacks by file descriptor. epoll reports ends of processes in the order in which they came, however late
        # it is called: the order of blame is the order of death.
        self._selector = selectors.DefaultSelector()
        self._children: dict[str, Child] = {}  # The newest start of each.
        names = tuple(replica.name for replica in plan.replicas)
        self._due = dict.fromkeys(names, 0.0)  # To be started, and when.
        self._state = State(names=names, strategy=plan.strategy, max_restarts=plan.max_restarts, reports=plan.reports)
        self._ending: dict[str, object] = {}  # Why the job ends, once it does.
        self._is_stopping = False  # Whether all were asked to save and end, on request or at the time limit.
        self._request = StopRequest()
        self._began = self._check_at = time.monotonic()
        self._time_out_at = self._began + (plan.timeout_s or math.inf)

    def run(self) -> int:
        """Starts every replica, and waits until none is left; returns the job's exit code."""
        self._selector.register(self._signals, selectors.EVENT_READ, self._on_signals)
        self._add_event("start", pid=os.getpid(), **self._plan.facts)
        while self._running() or self._due:
            for key, _ in self._selector.select(_TICK_S):
                key.data()
            for child in self._running():
                if child.pidfd is None and child.process.poll() is not None:
                    self._on_end(child)
                else:
                    child.signal_if_due()
            now = time.monotonic()
            for replica in self._plan.replicas:
                if self._due.get(replica.name, math.inf) <= now:
                    del self._due[replica.name]
                    self._start(replica)
            if now >= self._check_at:
                self._check(now)
        self._show()
        self._note_kills()
        seconds = round(time.monotonic() - self._began, 3)
        self._add_event("end", **self._ending, step=self._state.job.step, seconds=seconds)
        return int(self._ending["exit_code"])

    def reap(self) -> None:
        """Collects replicas that the guard had to kill because the job could not go on."""
        for child in self._running():
            child.process.wait()
        self._selector.close()

    def _running(self) -> list[Child]:
        return [child for child in self._children.values() if child.exit_code is None]

    def _start(self, replica: Replica) -> None:
        before = self._children.get(replica.name)
        child = Child(replica, before.attempt + 1 if before else 0, self._guard)
        self._children[replica.name] = child
        self._output.follow(replica.name, child.log, child.log_start)
        if child.pidfd is not None:
            self._selector.register(child.pidfd, selectors.EVENT_READ, functools.partial(self._on_end, child))
        self._add_event("up", replica=replica.name, attempt=child.attempt, pid=child.process.pid)

    def _on_signals(self) -> None:
        for number in received(self._signals):
            name = signal.Signals(number).name
            is_first = not self._request.number
            if self._request.is_repeated_by(number):
                self._stop_all(f"{name} again", 128 + number, grace_period_s=0)
            elif is_first:
                self._stop_all(f"told to stop by {name}", 128 + number, self._patience.grace_period_s)

    def _stop_all(self, why: str, exit_code: int, grace_period_s: float) -> None:
        """Has all save and end within the grace period, and nobody start again."""
        self._add_event("stop", why=why, again=not grace_period_s)
        self._is_stopping = True
        self._finish(why=why, exit_code=exit_code)
        for child in self._running():
            child.stop(0, grace_period_s)

    def _note_kills(self) -> None:
        """Replaces an exit code that means "saved" where a replica had to be killed meanwhile."""
        exit_code = self._ending["exit_code"]
        killed = ", ".join(name for name, child in self._children.items() if child.is_killed and not child.frozen)
        if killed and exit_code and (exit_code == SAVED or "replica" not in self._ending):
            why = f"{self._ending['why']}, but {killed} had to be killed and may not have saved"
            why += f"; the grace period is {self._patience.grace_period_s:g} s (--grace-period-s)"
            self._ending |= {"why": why, "exit_code": KILLED}

    def _finish(self, **ending: object) -> None:
        """Has nobody start again; the first cause is the one that counts."""
        self._ending = self._ending or ending
        self._state = dataclasses.replace(self._state, over=True)
        self._due.clear()

    def _on_end(self, child: Child) -> None:
        """Handles the end of a replica's process."""
        if child.pidfd is not None:
            self._selector.unregister(child.pidfd)
            os.close(child.pidfd)
        name = child.replica.name
        child.finish()
        now = time.monotonic()
        self._note(child, now)
        fields = {"attempt": child.attempt, "ending": child.ending, "exit_code": child.exit_code}
        self._add_event("down", replica=name, **fields, seconds=round(now - child.started, 3))
        running = self._running()
        computing = (other for other in running if other.replica.role != "evaluator")
        stopped = next((other.replica.name for other in computing if other.vitals.stopped), "")
        death = Death(replica=name, exit_code=child.exit_code, signalled=child.is_signalled, stopped=stopped)
        self._obey(death)
        self._obey(Gone(replica=name, last=not running))

    def _obey(self, news: Death | Gone) -> None:
        """Has the policy decide, and does what it orders."""
        self._state, order = decide(self._state, news)
        if order.kill:
            child = self._children[order.kill.replica]
            child.kill_frozen(order.kill.frozen)
            self._add_event("frozen", replica=child.replica.name, why=child.frozen)
        if order.stop is not Stop.NOBODY:
            self._due.clear()
            for child in self._running():
                child.stop(*self._times(order.stop, child.replica))
        if order.stop is Stop.SERVING:
            self._finish(why="done", exit_code=0)
        if order.answered:
            self._answer(order.answered, order)

    def _times(self, stop: Stop, replica: Replica) -> tuple[float, float]:
        """Returns how long a replica is left alone, and then has from SIGTERM to SIGKILL, both in seconds."""
        patience = self._patience
        if stop is Stop.ALL_SAVING:
            return 0, patience.grace_period_s
        if stop is Stop.ALL:
            return patience.report_delay_s, patience.failure_s
        waits_s = {"evaluator": patience.evaluator_s}
        if self._plan.strategy != "parameter_server":
            waits_s["worker"] = patience.join_s
        return waits_s.get(replica.role, 0), patience.failure_s

    def _answer(self, death: Death, order: Order) -> None:
        """Starts replicas again after a death, or reports why not."""
        child, budget = self._children[death.replica], order.budget
        fields = {"replica": death.replica, "ending": child.ending, "exit_code": death.exit_code}
        fields |= {"log": child.replica.log, "tail": child.tail(), "why": order.why}
        self._add_event("blame", **fields, kind=death.kind, step=budget.step)
        if order.why and self._state.over:
            self._finish(**fields)
        elif not order.why and not self._is_stopping:
            kill_marked(*map(self._guard.mark, order.start))
            self._due |= dict.fromkeys(order.start, time.monotonic() + budget.backoff_s)
            counts = {name: getattr(budget, name) for name in ("errors", "preemptions", "backoff_s")}
            counts["max_restarts"] = self._plan.max_restarts
            self._add_event("restart", replicas=order.start, after=death.kind, **counts)

    def _check(self, now: float) -> None:
        """Checks the time limit and all that run, shows them, and has the policy decide on one that is frozen."""
        self._check_at = now + self._patience.check_s
        if now >= self._time_out_at and not self._is_stopping and "replica" not in self._ending:
            why = f"ended by its time limit (scheduling.timeout: {self._plan.timeout_s} s)"
            self._stop_all(why, TIMED_OUT, self._patience.grace_period_s)
        frozen = []
        for child in self._running():
            self._note(child, now)
            why = child.vitals.frozen(now, self._patience, reports=self._plan.reports)
            if why and not child.is_signalled:
                frozen.append((child.vitals.changed, child.started, child.replica.name, why))
        if frozen:
            *_, name, why = min(frozen)  # The others may only wait for it.
            self._obey(Death(replica=name, frozen=why))
        self._show()

    def _note(self, child: Child, now: float) -> None:
        child.vitals.read(now)
        self._state = self._state.noted(child.replica.name, child.vitals.step)

    def _show(self) -> None:
        self._output.progress([child.row() for child in self._children.values()])

    def _add_event(self, event: str, **fields: object) -> None:
        self._output.event(self._record.add(event, **fields))

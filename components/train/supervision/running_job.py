"""The replicas of one job while it runs: started, watched, stopped and started again as the policy orders.

Everything happens in the callbacks of one selector, in one thread.
"""

import dataclasses
import functools
import math
import os
import selectors
import signal
import socket
import time

from components.train.backends.plan import Plan, Replica
from components.train.supervision.launcher_log import Record
from components.train.supervision.output import LogReader, Output, Row
from components.train.supervision.reaper import Guard, kill_marked
from components.train.supervision.replica import Child
from components.train.supervision.restart_policy import FROZEN, Death, Gone, Order, State, Stop, decide
from components.train.supervision.signals import received
from components.train.supervision.timeouts import Patience

TIMED_OUT = 124  # As of timeout(1).
_TICK_S = 0.05


class Job:
    """The replicas of one job, and what has happened so far."""

    def __init__(
        self, plan: Plan, patience: Patience, output: Output, record: Record, guard: Guard, signals: socket.socket
    ) -> None:
        self._plan, self._patience, self._output, self._record = plan, patience, output, record
        self._guard, self._signals = guard, signals
        # Callbacks by file descriptor. epoll reports ends of processes in the order in which they came, however late
        # it is asked: the order of blame is the order of death.
        self._selector = selectors.DefaultSelector()
        self._replicas = {replica.name: replica for replica in plan.replicas}
        self._children: dict[str, Child] = {}  # The newest start of each.
        self._awaited: list[Child] = []  # Running, or being cleaned up after.
        self._due: dict[str, float] = {}  # To be started again, and when.
        self._state = State(
            names=tuple(self._replicas), strategy=plan.strategy, max_restarts=plan.max_restarts, tells=plan.reports
        )
        self._ending: dict[str, object] = {}  # Why the job ends, once it does.
        self._is_stopping = False  # Whether all were told to save and end.
        self._look_at = self._began = time.monotonic()
        self._time_out_at = math.inf

    def run(self) -> int:
        """Starts every replica, and waits until none is left; returns the job's exit code."""
        self._time_out_at = time.monotonic() + (self._plan.timeout_s or math.inf)
        self._selector.register(self._signals, selectors.EVENT_READ, self._on_signals)
        self._add_event("start", pid=os.getpid(), **self._plan.facts)
        for replica in self._plan.replicas:
            self._start(replica)
        while self._awaited or self._due:
            for key, _ in self._selector.select(_TICK_S):
                key.data()
            for child in list(self._awaited):
                if child.pidfd is None and child.process.poll() is not None:
                    self._on_end(child)
                else:
                    child.signal_if_due()
            now = time.monotonic()
            for name in [name for name, due in self._due.items() if due <= now]:
                del self._due[name]
                self._start(self._replicas[name])
            if now >= self._time_out_at:
                self._time_out()
            if now >= self._look_at:
                self._look(now)
        self._show()
        return self._end()

    def reap(self) -> None:
        """Collects replicas that the guard had to kill because the job could not go on."""
        for child in self._awaited:
            child.process.wait()
        self._selector.close()

    def _start(self, replica: Replica) -> None:
        before = self._children.get(replica.name)
        child = Child(replica, before.attempt + 1 if before else 0, self._guard)
        self._children[replica.name] = child
        self._output.follow(replica.name, LogReader(child.log, child.log_start))
        self._await(child)
        self._add_event("up", replica=replica.name, attempt=child.attempt, pid=child.process.pid)

    def _await(self, child: Child) -> None:
        if child.pidfd is not None:
            self._selector.register(child.pidfd, selectors.EVENT_READ, functools.partial(self._on_end, child))
        self._awaited.append(child)

    def _on_signals(self) -> None:
        for number in received(self._signals):
            self._on_signal(number)

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        self._add_event("stop", signal=name, again=self._is_stopping)
        self._stop_all(f"told to stop by {name}", 128 + number)

    def _time_out(self) -> None:
        self._time_out_at = math.inf
        if not self._is_stopping and "replica" not in self._ending:
            self._add_event("timeout", timeout_s=self._plan.timeout_s)
            self._stop_all(f"ended by its time limit (scheduling.timeout: {self._plan.timeout_s} s)", TIMED_OUT)

    def _stop_all(self, why: str, exit_code: int) -> None:
        """Has all save and end, who are not to start again; at once if they were told before."""
        grace_s = 0 if self._is_stopping else self._patience.stop_s
        self._is_stopping = True
        self._finish(why=why, exit_code=exit_code)
        for child in self._awaited:
            child.stop(0, grace_s)

    def _finish(self, **ending: object) -> None:
        """Nobody is to be started again; the first cause is the one that counts."""
        self._ending = self._ending or ending
        self._state = dataclasses.replace(self._state, over=True)
        self._due.clear()

    def _on_end(self, child: Child) -> None:
        """The replica's process has ended, or the cleanup after it."""
        self._awaited.remove(child)
        if child.pidfd is not None:
            self._selector.unregister(child.pidfd)
            os.close(child.pidfd)
        name = child.replica.name
        if child.exit_code is not None:
            if why := child.cleaned():
                self._add_event("dirty", replica=name, command=" ".join(child.replica.cleanup), why=why)
        else:
            child.finish()
            now = time.monotonic()
            self._note(child, now)
            ending = {"attempt": child.attempt, "ending": child.ending, "exit_code": child.exit_code}
            self._add_event("down", replica=name, **ending, seconds=round(now - child.started, 3))
            self._hear(Death(replica=name, exit_code=child.exit_code, told=child.is_signalled, stopped=self._stopped()))
            if child.clean_up(self._patience.cleanup_s):
                self._await(child)
                return
        self._hear(Gone(replica=name, last=not self._awaited))

    def _stopped(self) -> str:
        """One of those that compute with others and that is stopped, or nothing."""
        running = (child for child in self._running() if child.replica.role != "evaluator")
        return next((child.replica.name for child in running if child.vitals.stopped), "")

    def _hear(self, news: Death | Gone) -> None:
        """Has the policy decide, and does what it orders."""
        self._state, order = decide(self._state, news)
        if order.kill:
            child = self._children[order.kill.replica]
            child.kill_frozen(order.kill.frozen)
            self._add_event("frozen", replica=child.replica.name, why=child.frozen)
        if order.stop is not Stop.NOBODY:
            self._due.clear()
            for child in self._awaited:
                child.stop(*self._times(order.stop, child.replica))
        if order.stop is Stop.SERVING:
            self._finish(why="done", exit_code=0)
        if order.answered:
            self._answer(order.answered, order)

    def _times(self, stop: Stop, replica: Replica) -> tuple[float, float]:
        """How long a replica is left alone, and then has from SIGTERM to SIGKILL, both in seconds."""
        patience = self._patience
        if stop is Stop.ALL_SAVING:
            return 0, patience.stop_s
        if stop is Stop.ALL:
            return patience.hear_s if replica.cleanup else 0, patience.failure_s
        waits = {"evaluator": patience.evaluator_s}
        if self._plan.strategy != "parameter_server":
            waits["worker"] = patience.join_s
        return waits.get(replica.role, 0), patience.failure_s

    def _answer(self, death: Death, order: Order) -> None:
        """Starts replicas again after a death, or says why not."""
        child = self._children[death.replica]
        fields = {"replica": death.replica, "ending": child.ending, "exit_code": death.exit_code}
        fields |= {"log": child.replica.log, "tail": child.tail()}
        self._add_event("blame", **fields, kind=death.kind, step=order.budget.step)
        if order.why and not order.start and not self._state.over:
            self._add_event("spent", replica=death.replica, why=order.why)
        elif order.why:
            self._finish(**fields, why=order.why)
        elif not self._is_stopping:
            before = [child for name, child in self._children.items() if name in order.start]
            kill_marked(*(self._guard.mark(child.replica.name, child.attempt) for child in before))
            counts = {"errors": order.budget.errors, "preemptions": order.budget.preemptions}
            counts |= {"max_restarts": self._plan.max_restarts, "backoff_s": order.budget.backoff_s}
            self._due |= dict.fromkeys(order.start, time.monotonic() + order.budget.backoff_s)
            self._add_event("restart", replicas=order.start, after=death.kind, **counts)

    def _look(self, now: float) -> None:
        """Looks at all that run, shows them, and tells the policy of one that is frozen."""
        self._look_at = now + self._patience.look_s
        frozen = []
        for child in self._running():
            self._note(child, now)
            if why := child.vitals.frozen(now, self._patience, reports=self._plan.reports):
                frozen.append((child.is_signalled, child.vitals.changed, child.started, child.replica.name, why))
        if frozen:
            is_signalled, *_, name, why = min(frozen)  # The others may only wait for it.
            self._hear(Death(replica=name, exit_code=FROZEN, frozen=why, told=is_signalled))
        self._show()

    def _note(self, child: Child, now: float) -> None:
        child.vitals.look(now)
        self._state = self._state.noted(child.replica.name, child.vitals.step)

    def _running(self) -> list[Child]:
        return [child for child in self._awaited if child.exit_code is None]

    def _show(self) -> None:
        self._output.progress([self._row(name) for name in self._replicas])

    def _row(self, name: str) -> Row:
        child = self._children.get(name)
        if child in self._awaited:
            return child.row("starting" if self._plan.reports else "running")
        return Row(replica=name, phase="to be restarted" if name in self._due else "ended")

    def _end(self) -> int:
        """Says how the job ended; returns its exit code."""
        seconds = round(time.monotonic() - self._began, 3)
        self._add_event("end", **self._ending, step=self._state.job.step, seconds=seconds)
        return int(self._ending["exit_code"])

    def _add_event(self, event: str, **fields: object) -> None:
        self._output.event(self._record.add(event, **fields))

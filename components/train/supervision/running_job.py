"""The replicas of one job while it runs: who is alive, who is to blame, who starts again.

The supervisor drives it; everything happens in the callbacks of one selector, in one thread.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import selectors
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterable

from components.train.backends.plan import Plan, Replica
from components.train.console.view import Plain, Row
from components.train.supervision.blame import Blame
from components.train.supervision.launcher_log import Record
from components.train.supervision.preparation import prepare
from components.train.supervision.reaper import Guard, kill_marked
from components.train.supervision.replica import Child
from components.train.supervision.restart_policy import SAVED, Budgets, Kind, Progress, kind_of, restarts_all
from components.train.supervision.signals import STOPPING
from components.train.supervision.timeouts import Patience
from trainer.base import lifeline
from trainer.base.errors import UserError

TIMED_OUT = 124  # As of timeout(1).
_POLL_S = 0.05  # Where the system cannot tell of a process's end.


class Job:
    """The replicas of one job, and what has happened so far."""

    def __init__(self, plan: Plan, patience: Patience, view: Plain, record: Record, selector: selectors.BaseSelector):
        self._plan, self._patience, self._view, self._record = plan, patience, view, record
        # Callbacks by file descriptor. epoll reports ends of processes in the order in which they came, however late
        # it is asked: the order of blame is the order of death.
        self._selector = selector
        self._budgets = Budgets(plan.max_restarts)
        self._replicas = {replica.name: replica for replica in plan.replicas}
        self._children: dict[str, Child] = {}  # Running, or being cleaned up after.
        self._awaited: dict[Child, int | None] = {}  # Whose end is waited for, with the descriptor that tells of it.
        self._starts: Counter[str] = Counter()
        self._due: dict[str, float] = {}  # To be started again, and when.
        self._spent: set[str] = set()
        self._blame: Blame | None = None  # Because of which all are being stopped, to start again or to end.
        self._lone: dict[str, Blame] = {}
        self._failed: tuple[Blame, str] | None = None
        self._chief_done = False
        self._unclean = False  # The chief's last cleanup failed.
        self._told: list[tuple[str, int]] = []  # To stop: why, and the exit code that follows.
        self._progress = Progress(told=plan.reports)
        self._look_at = self._began = time.monotonic()
        self._time_out_at = math.inf

    def start(self, guard: Guard, signals: socket.socket) -> None:
        """Starts every replica."""
        self._guard, self._signals = guard, signals
        self._time_out_at = time.monotonic() + (self._plan.timeout_s or math.inf)
        self._selector.register(signals, selectors.EVENT_READ, self._on_signals)
        self._tell("start", pid=os.getpid(), **self._plan.facts)
        for replica in self._plan.replicas:
            self._start(replica)

    def supervise(self) -> int:
        """Waits until no replica is left; returns the job's exit code."""
        while self._children or self._due:
            for key, _ in self._selector.select(self._timeout_s()):
                key.data()
            for child, descriptor in list(self._awaited.items()):
                process = child.cleaner or child.process
                if descriptor is None and process.poll() is not None:
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
            (child.cleaner or child.process).wait()

    @property
    def _over(self) -> bool:
        """Whether nobody is to be started again."""
        return bool(self._chief_done or self._failed or self._told)

    def _start(self, replica: Replica) -> None:
        child = Child(replica, self._starts[replica.name], self._guard)
        self._starts[replica.name] += 1
        self._children[replica.name] = child
        self._selector.register(child.process.stdout, selectors.EVENT_READ, functools.partial(self._on_output, child))
        self._await(child, child.process.pid)
        self._tell("up", replica=replica.name, attempt=child.attempt, pid=child.process.pid)

    def _await(self, child: Child, pid: int) -> None:
        descriptor = lifeline.open_pidfd(pid)
        if descriptor is not None:
            self._selector.register(descriptor, selectors.EVENT_READ, functools.partial(self._on_end, child))
        self._awaited[child] = descriptor

    def _timeout_s(self) -> float:
        times = [
            self._look_at,
            self._time_out_at,
            *self._due.values(),
            *(child.next_signal_at for child in self._awaited),
        ]
        wait_s = min(times) - time.monotonic()
        if None in self._awaited.values():
            wait_s = min(wait_s, _POLL_S)
        return max(0.0, wait_s)

    def _on_signals(self) -> None:
        for number in self._signals.recv(64):
            if number in STOPPING:
                self._on_signal(number)

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        self._tell("stop", signal=name, again=bool(self._told))
        self._stop_all(f"told to stop by {name}", 128 + number)

    def _time_out(self) -> None:
        self._time_out_at = math.inf
        if not (self._failed or self._told):
            self._tell("timeout", timeout_s=self._plan.timeout_s)
            self._stop_all(f"ended by its time limit (scheduling.timeout: {self._plan.timeout_s} s)", TIMED_OUT)

    def _stop_all(self, why: str, exit_code: int) -> None:
        """Has all save and end, who are not to start again; at once if they were told before."""
        grace_s = 0 if self._told else self._patience.stop_s
        self._told.append((why, exit_code))
        self._due.clear()
        self._stop(self._children.values(), grace_s)

    def _on_output(self, child: Child) -> None:
        if child.exit_code is not None:
            return
        self._view.lines(child.replica.name, child.read())
        if child.closed:
            self._selector.unregister(child.process.stdout)

    def _on_end(self, child: Child) -> None:
        """The replica's process has ended, or the cleanup after it."""
        descriptor = self._awaited.pop(child)
        if descriptor is not None:
            self._selector.unregister(descriptor)
            os.close(descriptor)
        if child.cleaner:
            if why := child.cleaned():
                self._tell("dirty", replica=child.replica.name, command=" ".join(child.replica.cleanup), why=why)
            self._unclean = bool(why) if child.replica.role == "chief" else self._unclean
            self._gone(child)
            return
        with contextlib.suppress(KeyError):  # It may have closed its output long ago.
            self._selector.unregister(child.process.stdout)
        self._view.lines(child.replica.name, child.finish())
        now = time.monotonic()
        self._note(child, now)
        seconds = round(now - child.started, 3)
        self._tell(
            "down",
            replica=child.replica.name,
            attempt=child.attempt,
            ending=child.ending,
            exit_code=child.exit_code,
            seconds=seconds,
        )
        self._judge(child)
        if child.clean_up(self._patience.cleanup_s):
            self._await(child, child.cleaner.pid)
        else:
            self._gone(child)

    def _judge(self, child: Child) -> None:
        """What follows from a replica's end; to be decided when whoever has to go is gone."""
        role = child.replica.role
        if self._over:
            return
        if self._blame:
            # The client of a replica elsewhere may tell of its end later than others of what that did to them.
            outside = kind_of(child.exit_code, frozen=False) is Kind.PREEMPTION and child.exit_code != SAVED
            if outside and self._blame.kind is Kind.ERROR and not child.was_sent(child.exit_code - 128):
                self._blame = Blame.of(child)
        elif child.exit_code == 0:
            if role == "chief":
                self._chief_done = True
                self._wind_down()
        elif not restarts_all(self._plan.strategy, role, child.exit_code):
            self._lone[child.replica.name] = Blame.of(child)
        else:
            blame = Blame.of(child)
            # Those that compute with a stopped replica give up before we do, and are not to blame.
            stopped = [other for other in self._running() if other.vitals.stopped]
            if stopped and blame.kind is Kind.ERROR:
                self._freeze(stopped[0], "stopped")
                blame = Blame.of(stopped[0])
            self._stop_for(blame)

    def _stop_for(self, blame: Blame) -> None:
        self._blame = blame
        self._due.clear()
        saving = blame.exit_code == SAVED
        self._stop(self._children.values(), self._patience.stop_s if saving else self._patience.failure_s)

    def _gone(self, child: Child) -> None:
        """Nothing is left of it."""
        name = child.replica.name
        del self._children[name]
        if self._over:
            return
        if not self._blame:
            if blame := self._lone.pop(name, None):
                self._decide(blame, [name])
        elif not self._children:
            blame, self._blame = self._blame, None
            self._lone.clear()
            self._decide(blame, [name for name in self._replicas if name not in self._spent])

    def _decide(self, blame: Blame, names: list[str]) -> None:
        """Starts `names` again, or ends the job."""
        reason = self._budgets.charge(blame.kind, blame.exit_code, new_step=self._progress.new_step())
        self._tell("blame", **blame.fields, kind=blame.kind, step=self._progress.step)
        if not reason and self._plan.level and "chief/0" in names:
            reason = self._level()
        if self._told:
            return
        if not reason:
            kill_marked(*(self._guard.mark(name, self._starts[name] - 1) for name in names))
            backoff_s = self._budgets.backoff_s
            self._due |= dict.fromkeys(names, time.monotonic() + backoff_s)
            self._tell(
                "restart",
                replicas=names,
                after=blame.kind,
                errors=self._budgets.used[Kind.ERROR],
                preemptions=self._budgets.used[Kind.PREEMPTION],
                max_restarts=self._plan.max_restarts,
                backoff_s=backoff_s,
            )
        elif blame.child.replica.role == "evaluator":
            self._spent.add(blame.child.replica.name)
            self._tell("spent", replica=blame.child.replica.name, why=reason)
        else:
            self._failed = blame, reason
            self._due.clear()
            self._stop(self._children.values(), self._patience.failure_s)

    def _level(self) -> str:
        """Has all machines start from the same checkpoints; returns why they cannot, or nothing."""
        try:
            number = prepare([self._plan.level], self._guard.mark("setup", 0), self._signals, self._view)
        except UserError as error:
            return str(error)
        if number:
            self._on_signal(number)
        return ""

    def _wind_down(self) -> None:
        """The chief is done. Under parameter servers the others only serve it, and would for ever."""
        self._due.clear()
        waits = {"evaluator": self._patience.evaluator_s}
        if self._plan.strategy != "parameter_server":
            waits["worker"] = self._patience.join_s
        for child in self._children.values():
            child.stop(waits.get(child.replica.role, 0), self._patience.failure_s)

    @staticmethod
    def _stop(children: Iterable[Child], grace_s: float) -> None:
        for child in children:
            child.stop(0, grace_s)

    def _look(self, now: float) -> None:
        """Looks at all that run, shows them, and kills one that is frozen."""
        self._look_at = now + self._patience.look_s
        frozen = []
        for child in self._running():
            self._note(child, now)
            if why := child.vitals.frozen(now, self._patience.limits, reports=self._plan.reports):
                frozen.append((child.vitals.changed, child.started, child, why))
        if frozen and not self._over and not self._blame:
            *_, child, why = min(frozen, key=lambda found: found[:2])  # The others may only wait for it.
            self._freeze(child, why)
        self._show()

    def _freeze(self, child: Child, why: str) -> None:
        child.frozen = why
        self._tell("frozen", replica=child.replica.name, why=why)
        child.stop(0, 0)

    def _note(self, child: Child, now: float) -> None:
        child.vitals.look(now)
        self._progress.note(child.vitals.step)

    def _running(self) -> list[Child]:
        return [child for child in self._children.values() if child.exit_code is None]

    def _show(self) -> None:
        self._view.rows([self._row(replica) for replica in self._plan.replicas])

    def _row(self, replica: Replica) -> Row:
        child, restarts = self._children.get(replica.name), max(0, self._starts[replica.name] - 1)
        if child:
            return child.row(restarts, "starting" if self._plan.reports else "running")
        state = "to be restarted" if replica.name in self._due else "ended"
        return Row(replica=replica.name, state=state, restarts=restarts)

    def _end(self) -> int:
        """Says how the job ended; returns its exit code."""
        fields: dict[str, object] = {"why": "done"}
        if self._failed:
            blame, reason = self._failed
            fields = {**blame.fields, "why": reason}
        elif not self._chief_done:
            why, exit_code = self._told[0]
            fields = {"why": why, "exit_code": exit_code}
        elif self._plan.level and self._unclean:
            why = "done, but what it made is still on the chief's host; the same command fetches it"
            fields = {"why": why, "exit_code": 1}
        seconds = round(time.monotonic() - self._began, 3)
        self._tell("end", **{"exit_code": 0, **fields}, step=self._progress.step, seconds=seconds)
        return int(fields.get("exit_code", 0))

    def _tell(self, event: str, **fields: object) -> None:
        self._view.event(self._record.add(event, **fields))

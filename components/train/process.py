"""The process back end: one process per replica on this machine.

Synopsis:

    exit_code = run(plan)

The first replica that ends badly ends the job: the others are stopped, it is named, and its exit code is the job's.
The chief's success ends the job too, and well. A signal to this process stops every replica; nothing outlives it, be it
killed by SIGKILL, and it does not outlive the process that `PIPELINE_OWNER_PID` names.

Ignored here: machine types, accelerators, disk, scheduling.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import selectors
import signal
import socket
import time
from collections.abc import Iterator

from components.train.child import Child
from components.train.guard import guarding
from components.train.plan import ProcessPlan
from trainer import lifeline
from trainer.errors import UserError

PREEMPTED = 143  # Saved and left on SIGTERM.
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_POLL_S = 0.05  # Where the system cannot tell of a process's end.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patience:
    """How long replicas are waited for.

    Attributes:
      stop_s: From SIGTERM to SIGKILL when the job is told to stop or is preempted: replicas save.
      failure_s: The same when there is nothing to save: after a failure, or after the chief's success.
      join_s: What workers of a synchronous job have to end by themselves after the chief's success.
      evaluator_s: The same for the evaluator, which may be at the last checkpoint.
    """

    stop_s: float = 25.0
    failure_s: float = 5.0
    join_s: float = 30.0
    evaluator_s: float = 300.0


def run(plan: ProcessPlan, patience: Patience | None = None, output: int = 1) -> int:
    """Starts every replica and waits for the end of the job; to be called from the main thread.

    Args:
      plan: What to start.
      patience: How long to wait for what.
      output: File descriptor of the merged stream: each line of each replica after `worker/1 | `.

    Returns:
      0 after the chief's success; the exit code of the replica that failed first, 128+n if signal n killed it, 143 if
      it was preempted; 128+n if signal n told this process to stop.

    Raises:
      UserError: If a replica cannot be started, or a log not written. None runs then.
    """
    owner = lifeline.owner_pid(os.environ)
    try:
        os.makedirs(plan.log_dir, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write logs to {plan.log_dir}: {error.strerror}") from None
    token = f"{os.getpid()}-{time.time_ns()}"
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(_signal_socket())
        job = _Job(plan.strategy, patience or Patience(), output, stack.enter_context(selectors.DefaultSelector()))
        stack.callback(job.reap)
        stack.enter_context(guarding(token))
        job.watch_signals(signals)
        for replica in plan.replicas:
            job.add(Child(replica, token))
        if owner:
            # After the replicas, which want a launcher of one thread to be forked from. The guard does the rest.
            lifeline.watch(owner, lambda: os.kill(os.getpid(), signal.SIGKILL))
        job.say(f"{len(plan.replicas)} replicas started; logs in {plan.log_dir}")
        return job.supervise()


class _Job:
    """The replicas of one run, and what has happened so far."""

    def __init__(self, strategy: str, patience: Patience, output: int, selector: selectors.BaseSelector):
        self._strategy = strategy
        self._patience = patience
        self._output: int | None = output
        # Callbacks by file descriptor. epoll reports ends of processes in the order in which they came, however late
        # it is asked: the order of blame is the order of death.
        self._selector = selector
        self._alive: dict[Child, int | None] = {}  # With the descriptor that tells of its end.
        self._failed: Child | None = None
        self._chief_done = False
        self._signals: list[int] = []

    def watch_signals(self, signals: socket.socket) -> None:
        """Acts on the signal numbers that arrive at `signals`."""
        self._selector.register(signals, selectors.EVENT_READ, functools.partial(self._on_signals, signals))

    def add(self, child: Child) -> None:
        """Takes charge of a replica."""
        self._selector.register(child.process.stdout, selectors.EVENT_READ, functools.partial(self._on_output, child))
        descriptor = lifeline.open_pidfd(child.process.pid)
        if descriptor is not None:
            self._selector.register(descriptor, selectors.EVENT_READ, functools.partial(self._on_end, child))
        self._alive[child] = descriptor

    def supervise(self) -> int:
        """Waits until no replica is left; returns the job's exit code."""
        while self._alive:
            for key, _ in self._selector.select(self._timeout_s()):
                key.data()
            for child, descriptor in list(self._alive.items()):
                if descriptor is None and child.process.poll() is not None:
                    self._on_end(child)
                else:
                    child.signal_if_due()
        if self._failed:
            self._report(self._failed)
            return self._failed.exit_code
        return 128 + self._signals[0] if self._signals else 0

    def reap(self) -> None:
        """Collects replicas that the guard had to kill because the job could not go on."""
        for child in self._alive:
            child.process.wait()

    def say(self, text: str) -> None:
        """A line of the launcher's own in the merged stream."""
        self._write("launcher", [text])

    def _timeout_s(self) -> float | None:
        wait_s = min(child.next_signal_at for child in self._alive) - time.monotonic()
        if None in self._alive.values():
            wait_s = min(wait_s, _POLL_S)
        return None if wait_s == float("inf") else max(0.0, wait_s)

    def _on_signals(self, signals: socket.socket) -> None:
        for number in signals.recv(64):
            if number not in _SIGNALS:
                continue
            self._signals.append(number)
            again = len(self._signals) > 1
            self.say(f"{signal.Signals(number).name}: {'killing' if again else 'stopping'} the replicas")
            self._stop_all(0 if again else self._patience.stop_s)

    def _on_output(self, child: Child) -> None:
        if child not in self._alive:
            return
        self._write(child.replica.name, child.read())
        if child.closed:
            self._selector.unregister(child.process.stdout)

    def _on_end(self, child: Child) -> None:
        descriptor = self._alive.pop(child)
        running = not (self._failed or self._chief_done or self._signals)
        with contextlib.suppress(KeyError):  # It may have closed its output long ago.
            self._selector.unregister(child.process.stdout)
        if descriptor is not None:
            self._selector.unregister(descriptor)
            os.close(descriptor)
        self._write(child.replica.name, child.finish())
        self.say(f"{child.replica.name} ended: {child.ending} after {time.monotonic() - child.started:.1f} s")
        if running and child.exit_code:
            self._failed = child
            self._stop_all(self._patience.stop_s if child.exit_code == PREEMPTED else self._patience.failure_s)
        elif running and child.replica.role == "chief":
            self._chief_done = True
            self._wind_down()

    def _stop_all(self, grace_s: float) -> None:
        for child in self._alive:
            child.stop(0, grace_s)

    def _wind_down(self) -> None:
        """The chief is done. Under parameter servers the others only serve it, and would for ever."""
        waits = {"evaluator": self._patience.evaluator_s}
        if self._strategy != "parameter_server":
            waits["worker"] = self._patience.join_s
        for child in self._alive:
            child.stop(waits.get(child.replica.role, 0), self._patience.failure_s)

    def _report(self, child: Child) -> None:
        what = "was preempted" if child.exit_code == PREEMPTED else "failed"
        self.say(f"{child.replica.name} {what} first: {child.ending}; log: {child.replica.log}; its last lines:")
        self._write("launcher", [f"  {line}" for line in child.tail] or ["  (none)"])

    def _write(self, name: str, lines: list[str]) -> None:
        data = memoryview("".join(f"{name} | {line}\n" for line in lines).encode("utf-8", "replace"))
        try:
            while data and self._output is not None:
                data = data[os.write(self._output, data) :]
        except OSError:
            self._output = None  # Nobody listens any more; the job and its log files go on.


@contextlib.contextmanager
def _signal_socket() -> Iterator[socket.socket]:
    """A socket that receives the number of each signal; one that this process was started to ignore stays ignored."""
    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.setblocking(False)
        before = {
            number: signal.signal(number, lambda *_: None)
            for number in _SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        wakeup = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        try:
            yield receiver
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)

"""Starts replicas of our trainer by forking a process that has TensorFlow loaded.

Synopsis:

    template = Template(environ, ["trainer.task", "--job-dir", "jobs/a", ...])
    ...                                   # when it is readable: template.read_waiting(); until template.ready
    process = template.popen(flags, environ)  # None if the template is gone: start it in the ordinary way
    process.wait()

Loading TensorFlow costs each replica two seconds of a core, which are most of the time that a job needs to get on after a
failure. A fork costs some milliseconds. Nothing of TensorFlow's runtime exists in the template: a replica's own first use
makes it. Parent and child talk over a socket that keeps messages apart: requests with a descriptor for the output one
way, process ids and exit codes the other way. A replica dies with the template, and that with the launcher.

Not where there are GPUs, whose driver does not bear forks, and only on Linux, which kills children with their parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any, NoReturn

_MESSAGE_BYTES = 200_000  # A request carries an environment; the system's limit for one message is about this.
_ANSWER_S = 10.0
_PR_SET_PDEATHSIG = 1


class Template:
    """The launcher's end.

    Attributes:
      ready: Whether TensorFlow is loaded.
      gone: Whether it ended.
    """

    def __init__(self, environ: Mapping[str, str], command: Sequence[str]):
        """Starts it.

        Args:
          environ: Of the template; forked replicas get their own.
          command: What its replicas run, so that whoever looks for processes of the job finds it.
        """
        self.ready = self.gone = False
        self._replicas: dict[int, Forked] = {}
        self._started: int | None = None
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_ANSWER_S)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "components.train.supervision.template", str(other.fileno()), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
                pass_fds=[other.fileno()],
            )

    def fileno(self) -> int:
        """Descriptor that is readable when there is something to `read`."""
        return self._socket.fileno()

    def popen(self, flags: Sequence[str], environ: Mapping[str, str]) -> Forked | None:
        """Forks a replica with these flags of the trainer, or returns None if that cannot be."""
        ours, theirs = os.pipe()
        try:
            request = json.dumps({"flags": list(flags), "environ": dict(environ)}).encode()
            socket.send_fds(self._socket, [request], [theirs])
            self._started = None
            while self._started is None and not self.gone:
                self.read()
        except OSError:  # It ended just now, or the environment is larger than a message may be.
            self._started = None
        finally:
            os.close(theirs)
        if self._started is None:
            os.close(ours)
            return None
        replica = self._replicas[self._started] = Forked(self, self._started, os.fdopen(ours, "rb", buffering=0))
        return replica

    def read_waiting(self) -> None:
        """Takes the messages that there are."""
        while not self.gone and select.select([self._socket], [], [], 0)[0]:
            self.read()

    def read(self) -> None:
        """Takes one message; waits for it."""
        try:
            message: Mapping[str, Any] = json.loads(self._socket.recv(_MESSAGE_BYTES) or b"{}")
        except OSError:  # It does not answer.
            message = {}
        match message:
            case {"ready": _}:
                self.ready = True
            case {"started": pid}:
                self._started = pid
            case {"ended": pid, "code": code}:
                if replica := self._replicas.pop(pid, None):
                    replica.returncode = code
            case _:
                self.gone = True
                self._process.kill()
                for replica in self._replicas.values():  # They die with it.
                    replica.returncode = -signal.SIGKILL
                self._replicas.clear()

    def close(self) -> None:
        """Ends it, with its replicas."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


class Forked:
    """A forked replica, with what is needed of `subprocess.Popen`."""

    def __init__(self, template: Template, pid: int, stdout: IO[bytes]):
        self.pid, self.stdout, self._template = pid, stdout, template
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or -n after signal n; None while it runs."""
        return self.returncode

    def wait(self) -> int:
        """Waits for its end and returns the same."""
        while self.returncode is None:
            self._template.read()
        return self.returncode


def _serve(talk: socket.socket, parent: int) -> None:
    """Loads TensorFlow, then forks a replica for each request, and tells of the ends of all."""
    _die_with(parent)
    # Replicas wait for it in a thread (`trainer.replicas.stop`); here it is of no use. The launcher's end is enough.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    from trainer.base import quiet

    with quiet.without_advice():
        from trainer import job, task  # noqa: F401
    ends, ended = socket.socketpair()
    for end in (ends, ended):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ended.fileno(), warn_on_full_buffer=False)
    selector = selectors.DefaultSelector()
    for source in (talk, ends):
        selector.register(source, selectors.EVENT_READ)
    _say(talk, ready=True)
    me = os.getpid()
    while True:
        for key, _ in selector.select():
            if key.fileobj is talk:
                request, descriptors, _, _ = socket.recv_fds(talk, _MESSAGE_BYTES, 1)
                if not request:
                    return
                if os.fork() == 0:
                    selector.close()
                    _replica(json.loads(request), descriptors[0], talk, me)
                os.close(descriptors[0])
            else:
                with contextlib.suppress(BlockingIOError):
                    ends.recv(4096)
                _reap(talk)


def _replica(request: Mapping[str, Any], output: int, talk: socket.socket, parent: int) -> NoReturn:
    """What a fork does: it becomes the replica."""
    code = 1
    try:
        os.setsid()
        _die_with(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP})
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        os.close(output)
        _say(talk, started=os.getpid())
        talk.close()
        os.environ.clear()
        os.environ.update(request["environ"])
        from trainer import task
        from trainer.base.errors import run_cli

        sys.argv = ["trainer.task", *request["flags"]]
        run_cli(task.main)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    finally:
        # Not to return into the template, whatever was raised.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _reap(talk: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            _say(talk, ended=found[0], code=os.waitstatus_to_exitcode(found[1]))


def _say(talk: socket.socket, **message: Any) -> None:
    talk.send(json.dumps(message).encode())


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)  # It ended before it was asked.


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), os.getppid())

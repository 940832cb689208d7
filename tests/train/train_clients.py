"""Stand-ins for the clients `ssh` and `docker`, which run here what would run elsewhere."""

import dataclasses
import os
import shlex
import sys
from pathlib import Path

from tests.programs import install, start_python

_SSH = """#!/bin/sh
# Drops the options; a host named dead does not answer. What runs bears no mark of the launcher.
while :; do case $1 in -[iop]) shift 2 ;; -*) shift ;; *) break ;; esac; done
host=${1#ssh://}; shift
case $host in *dead*) echo "ssh: connect to host $host: Connection refused" >&2; exit 255 ;; esac
env -u TRAINER_RUN sh -c "$*" <&0
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clients:
    """Programs `ssh` and `docker` in a directory of their own."""

    path: Path

    @classmethod
    def install(cls, path, monkeypatch):
        """Makes this process, and all that it starts, find them."""
        monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
        monkeypatch.setenv("FAKE_DOCKER", str(path))
        docker = shlex.join([sys.executable, "-S", str(Path(__file__).with_name("fake_docker.py"))])
        for name, text in (("ssh", _SSH), ("docker", f'#!/bin/sh\nexec {docker} "$@"\n')):
            install(path / name, text)
        (path / "hosts").write_text("localhost slots=2\n")
        (path / "sync.yaml").write_text("{strategy: multi_worker_mirrored, chief: {}, worker: {}}")
        return cls(path=path)

    def flags(self, backend):
        hosts = ["--hosts", str(self.path / "hosts")] if backend == "ssh" else []
        return ["--cluster", str(self.path / "sync.yaml"), "--backend", backend, *hosts]

    def start(self, backend, *more):
        return start_python("-m", "components.train", *self.flags(backend), *more)

    @property
    def job_dir(self):
        return ("--job-dir", str(self.path / "job"))

    def program(self, text):
        """Returns flags that run the text as a program of the user's own."""
        code = self.path / "code"
        code.mkdir()
        (code / "mine.py").write_text(text)
        line = "python -m mine 'a b' \"it's\""
        return ("--command", line, "--code", str(code), *self.job_dir)

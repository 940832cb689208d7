"""Stand-ins for the clients `ssh` and `docker`, which run on this machine what would run elsewhere."""

import dataclasses
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Self

import psutil

_SSH = """#!/bin/sh
# Drops the options; a host named dead does not answer. What runs there bears no mark of the launcher.
while :; do case $1 in -[iop]) shift 2 ;; -*) shift ;; *) break ;; esac; done
host=${1#ssh://}; shift
case $host in *dead*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;; esac
env -u TRAINER_RUN sh -c "$*" <&0
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clients:
    """Programs `ssh` and `docker` in a directory of their own."""

    path: Path

    @classmethod
    def install(cls, path: Path) -> Self:
        docker = shlex.join([sys.executable, "-S", str(Path(__file__).with_name("fake_docker.py"))])
        for name, text in (("ssh", _SSH), ("docker", f'#!/bin/sh\nexec {docker} "$@"\n')):
            (path / name).write_text(text)
            (path / name).chmod(0o755)
        (path / "hosts").write_text("localhost slots=2\n")
        (path / "sync.yaml").write_text("{strategy: multi_worker_mirrored, chief: {}, worker: {}}")
        return cls(path=path)

    def flags(self, backend: str) -> list[str]:
        hosts = ["--hosts", str(self.path / "hosts")] if backend == "ssh" else []
        return ["--cluster", str(self.path / "sync.yaml"), "--backend", backend, *hosts]

    def start(self, backend: str, *more: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "components.train", *self.flags(backend), *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, backend: str, *more: str) -> tuple[int, str, str]:
        launcher = self.start(backend, *more)
        out, err = launcher.communicate()
        return launcher.returncode, out, err

    def processes(self, word: str) -> list[psutil.Process]:
        """Returns the processes with the argument `word`."""
        return [
            each
            for each in psutil.process_iter(["cmdline"])
            if word in (each.info["cmdline"] or ())
        ]

    def program(self, text: str) -> tuple[str, ...]:
        """Returns flags that run the text as a program of the user's own."""
        code = self.path / "code"
        code.mkdir()
        (code / "mine.py").write_text(text)
        job = str(self.path / "job")
        return ("--command", "python -m mine 'a b' \"it's\"", "--code", str(code), "--job-dir", job)

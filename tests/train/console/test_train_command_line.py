"""Every flag times everything that could heed it: it is read there, or refused."""

import argparse
import itertools
import re
from collections.abc import Mapping

import pytest
from train_clients import Clients
from train_settings import GIVEN

from components.train import __main__
from components.train.console import command_line
from components.train.console.command_line import BACK_ENDS, HEEDED_BY, INSTEAD, parse, parser
from components.train.supervision import submitted_job
from trainer.base.errors import UserError

MODES = (*BACK_ENDS, *INSTEAD)
# Falsy ones too: they are given.
VALUES = {"--max-restarts": "0", "--start-timeout-s": "5", "--silence-timeout-s": "5", "--memory-gb": "1", "--code": ""}
VALUES |= {"--strategy": "multi_worker_mirrored", "--backend": "process"}
VALUES |= {"--region": "us-central1", "--max-machine-hours": "5", "--job-dir": "gs://b/j", "--image": "i@sha256:0"}
SETTINGS = {f"--{name.replace('_', '-')}": value for name, value in GIVEN.items()}
VALUES |= {flag: value[0] if isinstance(value, tuple) else value for flag, value in SETTINGS.items()}


def typed(flag: str, values: Mapping[str, object] = VALUES) -> list[str]:
    """The flag as typed, with some value."""
    if flag == "flags":
        return ["--", "--x"]
    return (
        [flag] if flag in ("--explain", "--strict", "--dry-run", "--web-access") else [flag, str(values.get(flag, "x"))]
    )


def of(mode: str) -> list[str]:
    return typed(f"--{mode}") if mode in INSTEAD else ["--backend", mode]


def test_every_flag_of_the_help_says_who_heeds_it():
    flags = set(re.findall(r"^  (--[a-z-]+)", parser().format_help(), re.MULTILINE))
    assert flags == {"--version", *HEEDED_BY} - {"flags"}
    assert all(set(by) <= set(MODES) and by for by in HEEDED_BY.values())


FLAGS = [flag for flag in HEEDED_BY if flag.removeprefix("--") not in INSTEAD]


@pytest.mark.parametrize(("flag", "mode"), itertools.product(FLAGS, MODES))
def test_flag_is_refused_by_all_that_do_not_heed_it(flag: str, mode: str):
    argv = [*of(mode), *typed(flag)] if flag != "--backend" or mode in INSTEAD else of(mode)
    if mode in HEEDED_BY[flag]:
        assert parse(argv).mode == mode
    else:
        with pytest.raises(
            UserError, match=rf"{flag.replace('flags', 'what follows')}.* is for .*, not for --.*{mode}; leave"
        ):
            parse(argv)


class Spy(argparse.Namespace):
    """Remembers what was read of it."""

    def __getattribute__(self, name: str):
        if not name.startswith("_"):
            object.__getattribute__(self, "__dict__").setdefault("_read", set()).add(name)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize("mode", [*BACK_ENDS, "explain"])
def test_what_heeds_a_flag_reads_it(
    clients: Clients, mode: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    """Each mode with all the flags that it heeds."""
    with open(clients.path / "sync.yaml", "w") as file:
        pool = "{machine: n1-standard-4}"
        file.write(f"strategy: multi_worker_mirrored\nchief: {pool}\nworker: {pool}\n")
    path = clients.path
    (path / "code").mkdir()
    values = VALUES | {"--cluster": path / "sync.yaml", "--hosts": path / "hosts"}
    values |= {"--code": path / "code", "--mount": path, "--log-dir": path / "logs"}
    values |= {} if mode == "vertex" else {"--job-dir": path / "job"}
    values |= {"--command": "true", "--ssh-command": "ssh", "--remote-python": "python3"}
    argv = [*of(mode)]
    for flag, by in HEEDED_BY.items():
        # Settings exclude each other, and have a test of their own.
        if mode in by and flag not in (f"--{mode}", "--backend", "flags", "--dry-run", *SETTINGS):
            argv += typed(flag, values)
    spies = []

    def spied(given: list[str]) -> Spy:
        spies.append(Spy(**vars(command_line.parse(given))))
        return spies[-1]

    monkeypatch.setattr(__main__, "parse", spied)
    monkeypatch.setattr(__main__.supervisor, "run", lambda *_: 0)
    monkeypatch.setattr(submitted_job.SubmittedJob, "run", lambda _: 0)
    assert __main__.main([*argv, "--", "--more"]) == 0
    names = {f.removeprefix("--").replace("-", "_") for f, by in HEEDED_BY.items() if mode in by and f not in SETTINGS}
    assert names - {"backend"} <= spies[0]._read

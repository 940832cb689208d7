import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from pipelines import run
from trainer.base.errors import run_cli

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="session")
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script of the project to its end."""

    def run(script: str, *flags: object, **env: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, script, *map(str, flags)]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, **env})

    return run


@pytest.fixture
def refused_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs what `pipelines/run.py` does with flags, in this process, sees it exit with 2, and returns the error."""
    monkeypatch.chdir(ROOT)

    def refuse(*flags: object) -> str:
        monkeypatch.setattr(sys, "argv", ["pipelines/run.py", *map(str, flags)])
        with pytest.raises(SystemExit) as stopped:
            run_cli(run.main)
        err = capsys.readouterr().err
        assert stopped.value.code == 2, err
        last = err.splitlines()[-1]
        assert last.startswith("error: "), err
        return last

    return refuse

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="session")
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script of the project to its end."""

    def run(script: str, *flags: object, timeout_s: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
        import os

        line: Sequence[str] = [sys.executable, script, *map(str, flags)]
        return subprocess.run(
            line, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, env={**os.environ, **env}
        )

    return run

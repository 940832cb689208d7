"""Fixtures that tests of several folders share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainer.errors import run_cli

pytest_plugins = ["saved_models", "vertex.fixtures"]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command's `main`, sees it exit with 2 and one line, and returns the line."""

    def run(main: Callable[..., int], *arguments: object) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            run_cli(lambda: main([str(argument) for argument in arguments]))
        err = capsys.readouterr().err
        assert stopped.value.code == 2, err
        assert err.startswith("error: ") and err.count("\n") == 1, err
        return err

    return run

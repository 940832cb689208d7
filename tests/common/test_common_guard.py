"""Processes of a job are found by their marks."""

import contextlib
import os
import subprocess

from common.guard import MARK, kill_marked


def test_similar_mark_is_spared():
    with contextlib.ExitStack() as stack:
        one, ten = (
            stack.enter_context(
                subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: f"{os.getpid()}:{name}"})
            )
            for name in ("worker-1", "worker-10")
        )
        stack.callback(one.kill)
        stack.callback(ten.kill)
        kill_marked(f"{os.getpid()}:worker-1")
        assert one.poll() is not None
        assert ten.poll() is None

from rich.console import Console

from pipelines.local.progress import Progress

LOG = b"""\
10:00:00.000 - INFO - Running pipeline: \x1b[95m'training'\x1b[0m
----------
10:00:00.001 - INFO - Task convert cache hit (key=0123456789ab); skipping execution.
10:00:00.001 - INFO - Executing task \x1b[96m'exit-handler-1'\x1b[0m
10:00:00.002 - INFO - Executing task \x1b[96m'plan'\x1b[0m
10:00:00.003 - INFO - Streamed logs:

    planning \xff
10:00:00.900 - INFO - Task \x1b[96m'plan'\x1b[0m finished with status \x1b[92mSUCCESS\x1b[0m
10:00:00.950 - INFO - Executing task \x1b[96m'train'\x1b[0m
    10:00:01.000 - INFO - Executing task 'evaluate'
    chief/0 | step 50/300  loss 0.2500  accuracy 0.5  1234 examples/s
    ValueError: no luck
10:00:02.000 - ERROR - Task \x1b[96m'train'\x1b[0m finished with status \x1b[91mFAILURE\x1b[0m
10:00:02.100 - INFO - Executing task \x1b[96m'cleanup'\x1b[0m
"""
LINES = LOG.splitlines(keepends=True)


def test_steps_are_read_and_shown(tmp_path):
    steps = []
    with open(tmp_path / "out", "w+") as out:
        console = Console(force_terminal=True, width=100, file=out, color_system=None)
        with Progress(tmp_path, console) as progress:
            for step in progress.follow(LINES):
                steps.append((step.name, step.status))
                progress.refresh()
        out.seek(0)
        shown = out.read()
    assert steps == [
        ("convert", "cached"),
        ("plan", "running"),
        ("plan", "succeeded"),
        ("train", "running"),  # What a step itself prints is indented and is no event.
        ("train", "running"),
        ("train", "failed"),
        ("cleanup", "running"),
        ("cleanup", "failed"),  # The run was stopped before its end.
    ]
    assert "✓ plan" in shown and "▸ train" in shown and "✗ train" in shown
    assert "step 50/300  loss 0.2500  1234 examples/s" in shown
    assert "ValueError: no luck" in (tmp_path / "train.log").read_text()
    assert "planning \ufffd" in (tmp_path / "plan.log").read_text()
    assert "\x1b" not in (tmp_path / "pipeline.log").read_text()

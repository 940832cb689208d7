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


def test_steps_are_read_from_log(tmp_path):
    events = [
        (step.name, step.status)
        for step in Progress(tmp_path).follow(LOG.splitlines(keepends=True))
    ]
    assert events == [
        ("convert", "cached"),
        ("plan", "running"),
        ("plan", "succeeded"),
        ("train", "running"),  # what a step itself prints is indented and is no event
        ("train", "running"),
        ("train", "failed"),
        ("cleanup", "running"),
        ("cleanup", "failed"),  # the run was stopped before its end
    ]
    assert "ValueError: no luck" in (tmp_path / "train.log").read_text()
    assert "planning \ufffd" in (tmp_path / "plan.log").read_text()
    whole = (tmp_path / "pipeline.log").read_text()
    assert "\x1b" not in whole and "no luck" in whole


def test_progress_without_terminal_prints_lines(tmp_path):
    console = Console(
        force_terminal=False, record=True, width=100, file=(tmp_path / "out").open("w")
    )
    with Progress(tmp_path, console) as progress:
        list(progress.follow(LOG.splitlines(keepends=True)))
    lines = console.export_text().splitlines()
    words = [["✓", "convert"], ["✓", "plan"], ["step", "50/300"], ["✗", "train"], ["✗", "cleanup"]]
    assert [line.split()[:2] for line in lines] == words
    assert "done before" in lines[0]


def test_progress_on_terminal_shows_training(tmp_path):
    console = Console(
        force_terminal=True, width=100, file=(tmp_path / "out").open("w"), color_system=None
    )
    with Progress(tmp_path, console) as progress:
        for _ in progress.follow(LOG.splitlines(keepends=True)):
            progress.refresh()
    console.file.close()
    shown = (tmp_path / "out").read_text()
    assert "✓ plan" in shown and "▸ train" in shown and "✗ train" in shown
    assert "step 50/300  loss 0.2500  1234 examples/s" in shown

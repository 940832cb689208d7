import json

from rich.console import Console

from pipelines.local.progress import Progress, training
from pipelines.local.steps import Steps
from trainer.job import journal

LOG = b"""\
Steps: convert plan train evaluate cleanup
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
    ValueError: no luck
10:00:02.000 - ERROR - Task \x1b[96m'train'\x1b[0m finished with status \x1b[91mFAILURE\x1b[0m
10:00:02.100 - INFO - Executing task \x1b[96m'cleanup'\x1b[0m
"""


def test_the_log_of_the_runner_tells_what_became_of_each_step(tmp_path):
    steps = Steps(tmp_path)
    events = [(step.name, step.status) for step in steps.follow(LOG.splitlines(keepends=True))]
    assert events == [
        ("convert", "cached"),
        ("plan", "running"),
        ("plan", "succeeded"),
        ("train", "running"),  # what a step itself prints is indented and is no event
        ("train", "failed"),
        ("cleanup", "running"),
    ]
    assert steps.seen["cleanup"].status == "failed"  # it never told its end
    assert "ValueError: no luck" in (tmp_path / "train.log").read_text()
    assert "planning \ufffd" in (tmp_path / "plan.log").read_text()
    whole = (tmp_path / "pipeline.log").read_text()
    assert "\x1b" not in whole and "no luck" in whole


def test_progress_without_a_terminal_prints_a_line_for_each_end(tmp_path):
    steps = Steps(tmp_path)
    console = Console(force_terminal=False, record=True, width=100, file=(tmp_path / "out").open("w"))
    with Progress(steps, tmp_path, console) as progress:
        for step in steps.follow(LOG.splitlines(keepends=True)):
            progress.changed(step)
    lines = console.export_text().splitlines()
    assert [line.split()[:2] for line in lines] == [["✓", "convert"], ["✓", "plan"], ["✗", "train"]]
    assert "done before" in lines[0]


def test_progress_on_a_terminal_shows_all_steps_and_the_training(tmp_path):
    status = tmp_path / "chief-0.status.json"
    assert training(status) == ""
    status.write_text('{"phase": "tr')
    assert training(status) == ""
    state = {"time": 0, "phase": "training", "step": 50, "train_steps": 300, "loss": 0.25, "examples_per_s": 1234.5}
    status.write_text(json.dumps(state))
    steps = Steps(tmp_path)
    console = Console(force_terminal=True, width=100, file=(tmp_path / "out").open("w"), color_system=None)
    with Progress(steps, tmp_path, console):
        list(steps.follow(LOG.splitlines(keepends=True)[:12]))
    console.file.close()
    assert training(status) == "step 50/300  loss 0.2500  1,234 examples/s"
    shown = (tmp_path / "out").read_text()
    assert "✓ plan" in shown and "✗ train" in shown


EVENTS = [{"event": "step", "step": step, "time": float(step), "loss": 1 / step} for step in (1, 2, 3)]
LINES = "".join(json.dumps(event) + "\n" for event in EVENTS).encode()


def test_a_journal_that_was_cut_anywhere_is_read_as_far_as_it_goes(tmp_path):
    for size in range(len(LINES) + 1):
        (tmp_path / "journal-chief-0-0.jsonl").write_bytes(LINES[:size])
        whole = [event for event in EVENTS if LINES.index(json.dumps(event).encode()) + len(json.dumps(event)) <= size]
        assert [*journal.events(tmp_path, "chief-0")] == whole[::-1]

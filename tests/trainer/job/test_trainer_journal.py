"""Journals that were cut when their replica died."""

import json

from trainer.job import journal

EVENTS = [
    {"event": "step", "step": step, "time": float(step), "loss": 1 / step} for step in (1, 2, 3)
]
LINES = "".join(json.dumps(event) + "\n" for event in EVENTS).encode()


def test_cut_journal_is_read_so_far(tmp_path):
    for size in range(len(LINES) + 1):
        (tmp_path / "journal-chief-0-0.jsonl").write_bytes(LINES[:size])
        whole = [
            event
            for event in EVENTS
            if LINES.index(json.dumps(event).encode()) + len(json.dumps(event)) <= size
        ]
        assert [*journal.events(tmp_path, "chief-0")] == whole[::-1]

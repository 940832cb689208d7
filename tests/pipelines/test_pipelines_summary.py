from __future__ import annotations

import json

from pipelines import summary

EVENTS = [{"event": "step", "step": step, "time": float(step), "loss": 1 / step} for step in (1, 2, 3)]
LINES = "".join(json.dumps(event) + "\n" for event in EVENTS).encode()


def test_a_journal_that_was_cut_anywhere_is_read_as_far_as_it_goes(tmp_path):
    for size in range(len(LINES) + 1):
        (tmp_path / "journal-chief-0-0.jsonl").write_bytes(LINES[:size])
        whole = [event for event in EVENTS if LINES.index(json.dumps(event).encode()) + len(json.dumps(event)) <= size]
        assert summary._journal(tmp_path) == whole

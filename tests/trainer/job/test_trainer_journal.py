"""Tests of a replica's journal, and of one that was cut."""

import json

from trainer.job import journal

CHIEF = "chief-0"


def test_cut_journal_is_read_so_far(tmp_path):
    lines = [json.dumps({"event": "step", "step": step}) for step in (1, 2, 3)]
    content = "\n".join(lines)
    for size in range(len(content) + 1):
        (tmp_path / "journal-chief-0-0.jsonl").write_text(content[:size])
        complete = [json.loads(line) for line in lines if line in content[:size]]
        assert [*journal.events(tmp_path, CHIEF)] == complete[::-1]

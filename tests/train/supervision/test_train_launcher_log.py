from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from train_fakes import ONE, Bench

from components.train.console.job_control import status
from components.train.supervision.launcher_log import FIELDS, FILE, Record, last_run
from trainer.base.errors import UserError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["event", "time", "why"]), inner),
)
EVENTS = st.sampled_from(["start", "up", "down", "end", "restart", "blame"])
LINES = st.one_of(
    st.binary(max_size=20).map(lambda text: text.replace(b"\n", b"")),
    JSON.map(lambda value: json.dumps(value).encode()),
    EVENTS.map(lambda event: json.dumps({"event": event, "time": 1.0}).encode()),
)


@pytest.fixture
def whole(bench: Bench) -> bytes:
    """The record of two launchers, the second of which restarted the job."""
    bench.run(bench.plan(ONE, chief_0=""))
    bench.run(bench.plan(ONE, max_restarts=1, chief_0="sys.exit(0 if attempt else 7)"))
    return (bench.path / FILE).read_bytes()


def test_status_of_a_record_that_was_cut_at_any_byte_is_told(bench: Bench, whole: bytes):
    first = whole.index(b"\n")
    for end in range(first, len(whole) + 1):
        (bench.path / FILE).write_bytes(whole[:end])
        assert status(str(bench.path)).state in ("killed", "done")
    for end in range(first):
        (bench.path / FILE).write_bytes(whole[:end])
        with pytest.raises(UserError, match="no job ran here"):
            status(str(bench.path))


def test_status_passes_lines_over_that_make_no_sense(bench: Bench, whole: bytes):
    lines = whole.splitlines()

    @settings(max_examples=50)
    @given(garbage=st.lists(st.tuples(st.integers(0, len(lines)), LINES), max_size=4))
    @example(garbage=[(0, b'{"event": "up", "time": 1, "replica": "chief/0", "attempt": 0, "pid": 1}')])
    @example(garbage=[(len(lines), b'{"event": "end", "time": 1}')])
    def check(garbage: list[tuple[int, bytes]]) -> None:
        broken = list(lines)
        for place, line in sorted(garbage, reverse=True, key=lambda each: each[0]):
            broken.insert(place, line)
        (bench.path / FILE).write_bytes(b"\n".join(broken) + b"\n")
        found = status(str(bench.path))
        assert (found.state, found.exit_code, found.restarts) == ("done", 0, {"errors": 1, "preemptions": 0})

    check()


def test_launcher_after_one_whose_last_line_is_torn_begins_a_line_of_its_own(bench: Bench, whole: bytes):
    (bench.path / FILE).write_bytes(whole[:-20])
    assert bench.run(bench.plan(ONE, chief_0="sys.exit(5)"))[0] == 5
    assert [event["event"] for event in last_run(str(bench.path))] == ["start", "up", "down", "blame", "end"]


def test_event_that_a_full_disk_takes_half_of_costs_no_other(tmp_path: Path):
    record = Record(str(tmp_path))
    record.add("start", **dict.fromkeys(FIELDS["start"].split()))
    limits, size = resource.getrlimit(resource.RLIMIT_FSIZE), (tmp_path / FILE).stat().st_size
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, limits[1]))  # Python ignores SIGXFSZ.
        record.add("end", exit_code=1, why="lost")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    record.add("end", exit_code=0, why="done")
    record.close()
    assert [event.get("why") for event in last_run(str(tmp_path))] == [None, "done"]

import json
import resource
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from components.train.console.job_control import status
from components.train.supervision.launcher_log import FILE, NEEDED, Record, last_run

REPLICA = {"replica": "chief/0", "log": "chief-0.log", "status": "no status"}
DOWN = {"replica": "chief/0", "ending": "exit code 7", "exit_code": 7, "seconds": 0.1}
START = dict.fromkeys(NEEDED["start"], 1) | {"replicas": [REPLICA], "notes": []}
AGAIN = {"replicas": ["chief/0"], "after": "error", "errors": 1, "preemptions": 0, "max_restarts": 1, "backoff_s": 0}
# Of two launchers, the second of which restarted the job.
EVENTS = [
    ("start", START),
    ("end", {"exit_code": 0, "why": "done"}),
    ("start", START),
    ("up", {"replica": "chief/0", "attempt": 0, "pid": 999_999_999}),
    ("down", {**DOWN, "attempt": 0}),
    ("blame", {**DOWN, "kind": "error", "step": None, "log": "log", "tail": ["boom"]}),
    ("restart", AGAIN),
    ("up", {"replica": "chief/0", "attempt": 1, "pid": 999_999_999}),
    ("down", {**DOWN, "attempt": 1, "ending": "exit code 0", "exit_code": 0}),
    ("end", {"exit_code": 0, "why": "done", "step": None, "seconds": 0.3}),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["event", "time", "why"]), inner),
)
KINDS = st.sampled_from(["start", "up", "down", "end", "restart", "blame"])
LINES = st.one_of(
    st.binary(max_size=20).map(lambda text: text.replace(b"\n", b"")),
    JSON.map(lambda value: json.dumps(value).encode()),
    KINDS.map(lambda event: json.dumps({"event": event, "time": 1.0}).encode()),
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("job")
    write(path, EVENTS)
    return path


def write(path: Path, events: list[tuple[str, dict]]) -> None:
    record = Record(str(path))
    for event, fields in events:
        record.add(event, **fields)
    record.close()


@given(garbage=st.lists(st.tuples(st.integers(0, len(EVENTS)), LINES), max_size=4))
@example(garbage=[(0, b'{"event": "up", "time": 1, "replica": "chief/0", "attempt": 0, "pid": 1}')])
@example(garbage=[(len(EVENTS), b'{"event": "end", "time": 1}')])
@example(garbage=[(len(EVENTS), b'{"event": "end", "ti')])
def test_lines_that_make_no_sense_or_are_torn_are_passed_over(job: Path, garbage: list[tuple[int, bytes]]):
    whole = (job / FILE).read_bytes()
    lines = whole.splitlines()
    for place, line in sorted(garbage, reverse=True, key=lambda each: each[0]):
        lines.insert(place, line)
    try:
        (job / FILE).write_bytes(b"\n".join(lines) + b"\n")
        found = status(str(job))
    finally:
        (job / FILE).write_bytes(whole)
    assert (found["state"], found["exit_code"], found["restarts"]) == ("done", 0, {"errors": 1, "preemptions": 0})


def test_launcher_after_one_whose_last_line_is_torn_begins_a_line_of_its_own(job: Path, tmp_path: Path):
    (tmp_path / FILE).write_bytes((job / FILE).read_bytes()[:-20])
    write(tmp_path, EVENTS[2:5])
    assert [event["event"] for event in last_run(str(tmp_path))] == ["start", "up", "down"]


def test_event_that_a_full_disk_takes_half_of_costs_no_other(tmp_path: Path):
    record = Record(str(tmp_path))
    record.add("start", **START)
    limits, size = resource.getrlimit(resource.RLIMIT_FSIZE), (tmp_path / FILE).stat().st_size
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, limits[1]))  # Python ignores SIGXFSZ.
        record.add("end", exit_code=1, why="lost")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    record.add("end", exit_code=0, why="done")
    record.close()
    assert [event.get("why") for event in last_run(str(tmp_path))] == [None, "done"]

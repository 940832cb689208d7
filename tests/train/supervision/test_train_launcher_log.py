import resource
from pathlib import Path

from components.train.console.job_control import status
from components.train.supervision.launcher_log import FILE, Record, last_run

REPLICA = {"replica": "chief/0", "log": "chief-0.log", "status": "no status"}
DOWN = {"replica": "chief/0", "ending": "exit code 7", "exit_code": 7, "seconds": 0.1, "attempt": 0}
START = {"replicas": [REPLICA], "notes": [], "log_dir": "logs"}
AGAIN = {"replicas": ["chief/0"], "after": "error", "errors": 1, "preemptions": 0, "max_restarts": 1, "backoff_s": 0}
END = {"exit_code": 0, "why": "done", "step": None, "seconds": 0.3}
# Of two launchers, the second of which restarted the job.
EVENTS = [("start", START), ("end", END), ("start", START), ("down", DOWN), ("restart", AGAIN), ("end", END)]


def write(path: Path, events: list[tuple[str, dict]]) -> None:
    record = Record(str(path))
    for event, fields in events:
        record.add(event, **fields)
    record.close()


def test_status_is_that_of_newest_launcher(tmp_path: Path):
    write(tmp_path, EVENTS)
    job = status(str(tmp_path))
    assert (job.state, job.restarts) == ("done", {"errors": 1, "preemptions": 0})


def test_torn_line_is_passed_over(tmp_path: Path):
    write(tmp_path, EVENTS[2:])
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:-20])
    assert [event["event"] for event in last_run(str(tmp_path))] == ["start", "down", "restart"]
    write(tmp_path, EVENTS[2:4])  # begins a line of its own
    assert [event["event"] for event in last_run(str(tmp_path))] == ["start", "down"]


def test_event_torn_by_full_disk_costs_no_other(tmp_path: Path):
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

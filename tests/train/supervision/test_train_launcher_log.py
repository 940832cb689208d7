from components.train.supervision.launcher_log import FILE, last_run, recording


def write(path, *events):
    with recording(str(path)) as record:
        for event in events:
            record(event, "")


def names(path):
    return [event["event"] for event in last_run(str(path))]


def test_torn_line_costs_no_other(tmp_path):
    assert not names(tmp_path)
    write(tmp_path, "start", "end")
    write(tmp_path, "start", "up", "down")
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:-20])
    assert names(tmp_path) == ["start", "up"]
    write(tmp_path, "start")
    assert names(tmp_path) == ["start"]

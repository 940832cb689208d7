import csv

import pytest

from pipelines.studying import report, table
from trainer.job_dir.interval import advised_s

COUNTS = {"processes": 1, "replicas": 1, "vital": 1, "steps": 100, "restarts": 0, "checkpoints": 0}
TOLD = {"time_s": 10.0, "machine_hours": 0.01, "metric": "accuracy", "computes_on": "Fast 9000", "job_dir": "x"}
RATES = {"examples_per_s": 100.0, "examples_per_s_of_each": 100.0, "score": 0.5, "checkpoint_cost_s": None}


def line(cell: str, repeat: int, **more: object) -> dict:
    kinds = {f"{kind}_s": 1.0 for kind in table.WENT_TO}
    return {"cell": cell, "repeat": repeat, **COUNTS, **RATES, **kinds, **TOLD, **more}


def test_a_run_is_compared_with_the_first_cells_run_of_the_same_repeat():
    speeds = {"one": [100.0, 50.0, 50.0], "two": [150.0, 90.0, None]}
    lines = [
        line(cell, repeat, examples_per_s=speed, replicas=1 + (cell == "two"))
        for cell, each in speeds.items()
        for repeat, speed in enumerate(each)
    ]
    found = table.compared(lines)
    assert [each["speed_up"] for each in found] == [1, 1, 1, 1.5, 1.8, None]
    assert [each["efficiency"] for each in found] == [1, 1, 1, 0.75, 0.9, None]
    one, two = table.rows(found)
    assert (two["examples/s"], two["speed-up"], two["runs"]) == ("120 (90 to 150)", "1.65 (1.50 to 1.80)", "3")
    assert one["accuracy"] == "0.5000 (0.5000 to 0.5000)" and one["replicas"] == "1"
    assert next(table.rows(table.compared(lines[:1])))["efficiency"] == "100%"


@pytest.mark.parametrize(
    ("more", "cost_s"),
    [({}, 0.2), ({"steps": 9}, None), ({"replicas": 2}, None), ({"restarts": 1}, None), ({"checkpoints": 4}, None)],
)
def test_what_a_checkpoint_costs_is_told_by_equal_runs_that_nothing_disturbed(more, cost_s):
    often = line("often", 0, checkpoints=11, steps_s=21.0, checkpoint_s=2.0) | more
    found = table.compared([line("none", 0, checkpoints=1, steps_s=20.0), often])
    assert found[1]["checkpoint_cost_by_times_s"] == (cost_s and pytest.approx(cost_s))


def test_the_advised_interval_is_for_the_replicas_that_all_wait_for():
    often = [line("often", repeat, checkpoints=20, checkpoint_cost_s=0.5, vital=4) for repeat in range(3)]
    (row,) = table.checkpoint_rows(table.compared([line("none", 0), *often]), {"often": 24.0})
    assert row["hours between failures of the job"] == "6"
    assert row["advised interval, s"] == f"{advised_s(0.5, 6 * 3600):.1f}"


def test_page_text_and_csv_say_the_same_cell_by_cell(tmp_path):
    lines = [line(cell, repeat, checkpoints=7, checkpoint_cost_s=0.1) for repeat in (0, 1) for cell in ("one", "two")]
    text = report.write(tmp_path, "What <if>?", lines, {"one": 24.0, "two": 24.0})
    assert text == (tmp_path / report.MARKDOWN).read_text() and text.startswith("# What <if>?\n")
    assert "\n| one | 2 | 1 | 10.0 (10.0 to 10.0) |" in text and "| advised interval, s |" in text
    read = list(csv.DictReader((tmp_path / report.CSV).read_text().splitlines()))
    assert [each["cell"] + each["repeat"] for each in read] == ["one0", "one1", "two0", "two1"]
    assert (read[3]["speed_up"], read[0]["job_dir"]) == ("1.0", "x")
    page = (tmp_path / report.PAGE).read_text()
    assert "What &lt;if&gt;?" in page and "Fast 9000" in page and page.count("<figure") == 2

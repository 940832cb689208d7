import pytest

from pipelines.studying import table
from trainer.job_dir.interval import advised_s

COUNTS = {"replicas": 1, "vital": 1, "steps": 100, "restarts": 0, "checkpoints": 0, "checkpoint_cost_s": None}
RATES = {"examples_per_s": 100.0, "examples_per_s_of_each": 100.0, "score": 0.5, "machine_hours": 0.01}


def line(cell: str, repeat: int, **more: object) -> dict:
    kinds = {f"{kind}_s": 1.0 for kind in (*table.WENT_TO, "time")}
    return {"cell": cell, "repeat": repeat, "metric": "accuracy", **COUNTS, **RATES, **kinds, **more}


def test_a_run_is_compared_with_the_first_cells_run_of_the_same_repeat():
    one = [line("one", repeat, examples_per_s=speed) for repeat, speed in enumerate([100.0, 50.0, 50.0])]
    two = [line("two", repeat, examples_per_s=speed, replicas=2) for repeat, speed in enumerate([150.0, 90.0, None])]
    found = table.compared(one + two)
    assert [each["speed_up"] for each in found] == [1, 1, 1, 1.5, 1.8, None]
    assert [each["efficiency"] for each in found] == [1, 1, 1, 0.75, 0.9, None]
    first, row = table.rows(found)
    assert (row["examples/s"], row["speed-up"], row["runs"]) == ("120 (90 to 150)", "1.65 (1.50 to 1.80)", "3")
    assert first["accuracy"] == "0.5000 (0.5000 to 0.5000)" and first["replicas"] == "1"
    assert next(table.rows(table.compared(one[:1])))["efficiency"] == "100%"


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

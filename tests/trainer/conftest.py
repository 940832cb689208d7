import copy
import pathlib
from collections.abc import Callable, Iterator

import pytest
import trips
from trainer_jobs import Job


@pytest.fixture(scope="session")
def weighed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Trips with columns that no model takes; what is missing of one stands for a negative number."""
    schema = copy.deepcopy(trips.SCHEMA)
    kinds = {"importance": "float", "negative": "float", "zero": "int", "name": "string", "usual": "float"}
    schema["columns"] |= {name: {"type": kind} for name, kind in kinds.items()}
    schema["columns"]["usual"]["default"] = -1
    rows = [
        {**row, "importance": i % 4 / 2, "negative": 1 - i % 3, "zero": 0, "name": "x", "usual": i if i % 9 else ""}
        for i, row in enumerate(trips.rows(400))
    ]
    table = [{name: row[name] for name in schema["columns"]} for row in rows]
    return trips.make(tmp_path_factory.mktemp("trips"), table, schema)


@pytest.fixture
def make(digits: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Callable[..., Job]]:
    """Makes jobs, of the digits unless told otherwise, whose replicas end with the test."""
    made: list[Job] = []

    def job(name: str = "", data: pathlib.Path = digits) -> Job:
        made.append(Job(data, tmp_path / (name or f"job{len(made)}")))
        return made[-1]

    yield job
    for each in made:
        each.close()


@pytest.fixture
def job(make: Callable[..., Job]) -> Job:
    """One of them."""
    return make()

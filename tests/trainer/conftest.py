import pytest
from trainer_jobs import Job

from common.manifest import Manifest


@pytest.fixture
def images(digits):
    """Returns the manifest of the digits."""
    return Manifest.load(digits)


@pytest.fixture
def make(digits, tmp_path):
    """Makes jobs, of the digits unless told otherwise, whose replicas end with the test."""
    made: list[Job] = []

    def job(name="", data=digits):
        made.append(Job(data, tmp_path / (name or f"job{len(made)}")))
        return made[-1]

    yield job
    for each in made:
        each.close()


@pytest.fixture
def job(make):
    """One of them."""
    return make()

import pytest
from trainer_jobs import CLUSTERS, Job

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


@pytest.fixture(scope="session")
def undisturbed(request, tmp_path_factory):
    """Returns jobs that nothing has disturbed, by cluster, flags and dataset; each is run once."""
    jobs: dict[tuple, Job] = {}

    def run(how, flags, data="digits"):
        key = how, flags, data
        if key not in jobs:
            directory = tmp_path_factory.mktemp("undisturbed") / how
            jobs[key] = Job(request.getfixturevalue(data), directory)
            roles, more = CLUSTERS[how]
            jobs[key].run(*roles, flags=flags + more)
        return jobs[key]

    return run

from __future__ import annotations

import pytest

from components.train.backends.plan import ATTEMPT, STATUS, Plan, trainer_flags
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Pool
from trainer.base.errors import UserError
from trainer.job_dir import journal

CLUSTER = Cluster(strategy="parameter_server", chief=Pool(), worker=Pool(), ps=Pool())


def test_strategy_is_among_the_trainers_flags_once():
    for flags in (["--a"], ["--a", "--strategy", "parameter_server"]):
        assert trainer_flags(CLUSTER, flags) == ["--a", "--strategy", "parameter_server"]


def test_another_strategy_than_the_clusters_is_refused():
    with pytest.raises(UserError, match=r"--strategy mirrored: the cluster file says parameter_server"):
        trainer_flags(CLUSTER, ["--strategy=mirrored"])


@pytest.mark.parametrize(("job_dir", "place"), [("jobs/a", "jobs/a"), ("gs://bucket/a", "logs")])
def test_launcher_keeps_its_records_on_this_machine(job_dir: str, place: str):
    assert Plan(strategy="one_device", job_dir=job_dir, log_dir="logs", replicas=()).records_dir == place


def test_names_of_variables_are_those_that_the_trainer_reads():
    assert (STATUS, ATTEMPT) == (journal.STATUS, journal.ATTEMPT)

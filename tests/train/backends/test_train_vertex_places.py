"""Places of a job: a region that later commands do not name, and data that replicas do not see."""

import signal
from collections.abc import Iterator

import pytest
from train_vertex import Training, trainings

from common.errors import UserError
from components.train.__main__ import main


@pytest.fixture
def training(vertex, bucket, tmp_path, monkeypatch) -> Iterator[Training]:
    """A job in europe-west4 whose first command has ended before it."""
    vertex.parent = f"projects/{vertex.project}/locations/europe-west4"
    with trainings(vertex, bucket, tmp_path, monkeypatch) as training:
        training.before = lambda: signal.raise_signal(signal.SIGHUP)
        training.endings = [(0, "", 9)]
        assert training("--region", "europe-west4") == 129
        training.before = lambda: None
        yield training


def test_status_finds_region_of_job(training, capsys):
    flags = ["--backend", "vertex", "--project", training.vertex.project]
    assert main(["--status", "gs://demo/job", *flags]) == 0
    assert capsys.readouterr().out.startswith("done, training-")


def test_another_region_makes_no_second_job(training):
    assert training("--region", "us-central1") == 0
    assert len(training.jobs()) == 1


@pytest.mark.parametrize("path", [".", "data/mnist", __file__])
def test_data_of_this_machine_are_refused(training, path):
    with pytest.raises(UserError, match=f"--data-dir {path}: .*give gs://BUCKET/NAME"):
        training(data_dir=path)
    assert len(training.jobs()) == 1

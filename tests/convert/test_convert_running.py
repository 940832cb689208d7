"""However the work on a conversion is shared out, the result is the same."""

import dataclasses
import json
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import trips

from components.convert import running
from components.convert.convert import convert
from components.convert.options import Options
from trainer.base.errors import UserError

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module", params=["idx", "csv"])
def options(request, tmp_path_factory, make_idx) -> Options:
    """A source, the latter of which is looked at before it is written."""
    root = tmp_path_factory.mktemp("source")
    if request.param == "csv":
        kind = trips.write(root, trips.rows(900))
    else:
        make_idx(root / "idx", size=(9, 7), packed=False, train=900, test=90)
        kind = {"dataset": "idx", "source": str(root / "idx")}
    return Options(**kind, output=str(root / "out"), shards=7, processes=1)


@pytest.fixture(scope="module")
def expected(options, content) -> dict[str, bytes]:
    convert(options)
    return content(pathlib.Path(options.output))


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(running, "_LOOK_EVERY_S", 0.01)


def test_tasks_at_once_share_the_pieces_and_the_first_makes_the_dataset(tmp_path, options, expected, content):
    tasks = [dataclasses.replace(options, output=str(tmp_path / "out"), task=f"{i}/3") for i in (2, 1, 0)]
    done = {}
    threads = [threading.Thread(target=lambda t=task: done.update({t.task: convert(t)}), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert content(tmp_path / "out") == expected
    first = done.pop("0/3")
    assert done == {"1/3": None, "2/3": None}
    assert convert(tasks[0]) == first  # one that is started again later finds it


def test_a_task_without_a_share_that_missed_the_plan_ends_with_the_dataset(tmp_path, monkeypatch):
    one = Options(output=str(tmp_path / "out"), shards=1)
    made = convert(one)
    looks = iter([None, made])  # there is none yet when it begins, and is when it looks again
    monkeypatch.setattr("components.convert.writing.output.finished", lambda output: next(looks, made))
    assert convert(dataclasses.replace(one, task="1/2")) is None


def test_stages_one_by_one_each_by_several_tasks(tmp_path, options, expected, content):
    for stage, tasks in (("cut", 1), ("look", 2), ("write", 4), ("merge", 1)):
        for i in range(tasks):
            done = convert(dataclasses.replace(options, output=str(tmp_path / "out"), stage=stage, task=f"{i}/{tasks}"))
            assert (done is None) == (stage != "merge")
    assert content(tmp_path / "out") == expected


def test_replicas_of_a_cluster_know_their_share(monkeypatch):
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    for i, (role, index) in enumerate((("chief", 0), ("worker", 0), ("worker", 1))):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}))
        assert [*Options(output="o", task="auto").share.of(8)] == [*range(i, 8, 3)]
    monkeypatch.delenv("TF_CONFIG")
    assert [*Options(output="o", task="auto").share.of(2)] == [0, 1]


@pytest.mark.parametrize("task", ["3/3", "-1/3", "1", "a/b", "1/2/3", "0/0"])
def test_a_share_that_is_none_is_refused(task):
    with pytest.raises(UserError, match=r"--task: .* is not I/N with 0 <= I < N, or auto"):
        Options(output="o", task=task)


@pytest.mark.slow
def test_tasks_that_are_killed_at_random_moments_and_started_again_make_the_same(tmp_path, options, expected, content):
    chance, kills, out = random.Random(0), 0, tmp_path / "out"
    command = [sys.executable, "-m", "components.convert", *dataclasses.replace(options, output=str(out)).as_flags()]

    def start(i: int) -> subprocess.Popen:
        return subprocess.Popen([*command, f"--task={i}/3"], cwd=ROOT, stdout=subprocess.DEVNULL)

    tasks = {i: start(i) for i in range(3)}
    while tasks:
        time.sleep(chance.uniform(0.1, 0.8))
        for i, process in list(tasks.items()):
            if process.poll() is None and kills < 30 and chance.random() < 0.4:
                process.send_signal(signal.SIGKILL)
                kills += 1
            if process.poll() == 0:
                del tasks[i]
            elif process.poll() is not None:
                assert process.returncode == -signal.SIGKILL
                tasks[i] = start(i)
    assert content(out) == expected and kills >= 10

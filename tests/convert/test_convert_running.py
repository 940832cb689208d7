"""However the work on a conversion is shared out, the result is the same."""

import contextlib
import dataclasses
import json
import multiprocessing
import pathlib
import random
import shutil
import threading
import time

import kinds
import numpy as np
import psutil
import pytest

from components.convert import running
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.stages import Work
from components.convert.writing import parts
from components.convert.writing.notes import Notes
from components.convert.writing.tfrecord import Field, Layout
from tests.cloud import objects
from trainer.base.errors import UserError

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", params=kinds.KINDS)
def options(request, tmp_path_factory, make_idx, write_records) -> Options:
    root = tmp_path_factory.mktemp("source")
    source = kinds.make(request.param, root, make_idx, write_records)
    return Options(**source, output=str(root / "out"), shards=7, processes=1)


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


def test_a_stage_before_its_turn_says_which_comes_first(tmp_path, make_idx):
    one = Options(output=str(tmp_path / "out"), shards=2, stage="cut")
    convert(one)
    with pytest.raises(UserError, match=r"--stage merge: . of . pieces are not done yet; .* --stage write first"):
        convert(dataclasses.replace(one, stage="merge"))


def test_a_task_with_other_flags_than_the_first_says_so_while_it_waits(tmp_path):
    one = Options(output=str(tmp_path / "out"), shards=2, stage="cut")
    convert(one)
    other = dataclasses.replace(one, shards=3, stage=None, task="1/2", silence_timeout_s=0.1)
    with pytest.raises(UserError, match="what lies there was begun with other flags or files"):
        convert(other)


def test_a_task_waits_as_long_as_others_do_something_and_then_says_whom_it_misses(tmp_path, make_idx, monkeypatch):
    make_idx(tmp_path / "idx", train=99, test=99)
    given = Options(
        dataset="idx", source=str(tmp_path / "idx"), output=str(tmp_path / "out"), shards=3, silence_timeout_s=0.7
    )
    first, second = (dataclasses.replace(given, task=f"{i}/2") for i in (0, 1))
    with pytest.raises(
        UserError, match=r"first task to cut the source: nothing was done for 0\.7 s .* start that task"
    ):
        convert(second)
    with pytest.raises(UserError, match=r"waiting for pieces of task 1: nothing was done for 0\.7 s"):
        convert(first)
    for of, name, seconds in ((running.Origin, "cut", 1.0), (running.output, "require_room", 0.3)):  # after each piece
        do = getattr(of, name)
        monkeypatch.setattr(of, name, lambda *a, do=do, seconds=seconds: [time.sleep(seconds), do(*a)][1])
    monkeypatch.setattr(running, "_BEAT_EVERY_S", 0.1)
    shutil.rmtree(tmp_path / "out")
    thread = threading.Thread(target=convert, args=[second], daemon=True)
    thread.start()
    assert convert(first) == convert(dataclasses.replace(first, task=None))
    thread.join(60)


@pytest.mark.parametrize("moment", ["_division", "_do", "_all"])
@pytest.mark.parametrize("late", [{}, {"task": "0/2"}, {"task": "1/2"}, {"stage": "cut"}], ids=str)
def test_whoever_is_late_because_others_have_just_made_the_dataset_leaves_it_as_it_is(
    bucket, content, monkeypatch, late, moment
):
    whole, do, made = Options(output="gs://demo/out", shards=3, processes=1), getattr(running, moment), []

    def stamps() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in bucket.rglob("*.*") if path.suffix != ".html"}

    def late_for(*work: object) -> object:
        monkeypatch.setattr(running, moment, do)
        made.extend((convert(whole), content(bucket), stamps()))
        return do(*work)

    if "task" in late:
        convert(dataclasses.replace(whole, stage="cut"))
    monkeypatch.setattr(running, moment, late_for)
    monkeypatch.setattr(objects, "_WRITE_S", 0)
    given = convert(dataclasses.replace(whole, **late))
    assert not made or (content(bucket), stamps()) == tuple(made[1:])
    assert not made or given == (None if late.get("task") == "1/2" or "stage" in late else made[0])


def test_whoever_begins_when_others_just_have_deletes_nothing_of_theirs(bucket, monkeypatch):
    whole, get = Options(output="gs://demo/out", shards=3, processes=1), Notes.get

    def late(notes: Notes, name: str) -> object:
        monkeypatch.setattr(Notes, "get", get)
        given = get(notes, name)
        for stage in ("cut", "write"):
            convert(dataclasses.replace(whole, stage=stage))
        monkeypatch.setattr(Work, "write", None)
        return given

    monkeypatch.setattr(Notes, "get", late)
    assert convert(whole).splits["test"].examples == 346


@pytest.mark.parametrize("options", ["idx", "images"], indirect=True)  # without an index of records and with one
def test_two_who_join_the_same_shards_at_once_in_a_bucket_make_one_dataset(
    bucket, options, expected, content, monkeypatch
):
    whole, done = dataclasses.replace(options, output="gs://demo/out"), []
    convert(dataclasses.replace(whole, stage="cut"))
    both, merge = threading.Barrier(2, timeout=20), Work.merge
    monkeypatch.setattr(Work, "merge", lambda work, of, place: [place and both.wait(), merge(work, of, place)][1])
    monkeypatch.setattr(objects, "_WRITE_S", 0)
    threads = [threading.Thread(target=lambda: done.append(convert(whole)), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert content(bucket / "out") == expected
    assert done == [convert(whole)] * 2


def test_a_manifest_is_not_written_over_shards_that_another_has_deleted(bucket, monkeypatch):
    whole = Options(output="gs://demo/out", shards=3, processes=1)
    monkeypatch.setattr("components.convert.convert._write_page", lambda *_: running.output.discard(whole.output))
    with pytest.raises(UserError, match=r"-of-\d+\.\w+ is missing or damaged"):
        convert(whole)
    assert not [*bucket.iterdir()]


def test_pieces_that_a_late_task_has_divided_otherwise_are_not_taken_for_those_of_this_conversion(
    tmp_path, content, monkeypatch
):
    this, write = Options(output=str(tmp_path / "out"), shards=3, processes=1), Work.write
    late = dataclasses.replace(this, split_seed=1)

    def writes(work: Work, *rest: object) -> object:
        monkeypatch.setattr(Work, "write", write)
        convert(dataclasses.replace(this, stage="cut"))
        return write(work, *rest)

    convert(dataclasses.replace(late, stage="cut"))
    monkeypatch.setattr(Work, "write", writes)
    convert(dataclasses.replace(late, stage="write"))
    for stage in ("write", "merge"):
        convert(dataclasses.replace(this, stage=stage))
    convert(dataclasses.replace(this, output=str(tmp_path / "clean")))
    assert content(tmp_path / "out") == content(tmp_path / "clean")


def test_a_shard_that_another_dataset_has_in_a_bucket_is_not_replaced(bucket):
    (bucket / "shard.tfrecord").write_bytes(b"of another")
    writer = parts.Writer("gs://demo/part", Layout([Field(name="label", kind="int64", num_bytes=1)]))
    writer.append({"label": np.zeros(3, np.int64)})
    with pytest.raises(UserError, match="412"):
        parts.join([("gs://demo/part", writer.close())], "gs://demo/shard", indexed=False)
    assert (bucket / "shard.tfrecord").read_bytes() == b"of another"


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


@pytest.mark.parametrize(
    ("place", "kills"),
    [("here", 4), ("bucket", 4)]
    + [pytest.param(place, 30, marks=pytest.mark.slow) for place in ("here", "bucket", "bucket to bucket")],
)
def test_whatever_is_killed_at_whatever_moment_and_goes_on_in_other_tasks_makes_the_same(
    request, tmp_path, options, expected, content, place, kills
):
    given, out = dataclasses.replace(options, output=str(tmp_path / "made")), tmp_path / "made"
    if place != "here":
        bucket = request.getfixturevalue("busy_bucket")
        given, out = dataclasses.replace(options, output="gs://demo/made"), bucket / "made"
    if place == "bucket to bucket":
        shutil.copytree(root := str(pathlib.Path(options.output).parent), bucket, dirs_exist_ok=True)
        sources = [options.source] if isinstance(options.source, str) else options.source
        one, *more = (path.replace(root, "gs://demo") for path in sources)
        given = dataclasses.replace(given, source=(one, *more) if more else one)
    chance, left, end = random.Random(kills), kills, time.monotonic() + 240
    fork = multiprocessing.get_context("fork")  # which is at work at once: a command would mostly die of its imports
    tasks: dict[multiprocessing.Process, Options] = {}

    def start(job: Options) -> None:
        task = fork.Process(target=convert, args=[job])
        task.start()
        tasks[task] = job

    lost = True  # nothing has been begun, or all who had are dead
    while left or tasks or lost:
        if not tasks:
            if not lost:  # so fast that there are kills left
                assert content(out) == expected
                shutil.rmtree(out)
            lost = False
            count, processes = chance.randint(1, 3), chance.randint(1, 2)
            for i in range(count):
                share = f"{i}/{count}" if count > 1 else None
                start(dataclasses.replace(given, processes=processes, task=share))
        joining, moment = chance.random() < 0.5, time.monotonic() + chance.uniform(0, 0.2)
        while all(task.is_alive() for task in tasks) and (
            time.monotonic() < moment or (joining and not [*out.glob("*-of-*")])
        ):
            time.sleep(0.001)
        alive = [psutil.Process(task.pid) for task in tasks if task.is_alive()]
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if left and (living := [one for task in alive for one in (task, *task.children())]):
                chance.choice(living).kill()
                left -= 1
                if chance.random() < 0.3:  # all machines are lost, and another number of them comes
                    for task in alive:
                        task.kill()
                    tasks.clear()
                    lost = True
        for task in [task for task in tasks if not task.is_alive()]:
            job = tasks.pop(task)
            if task.exitcode:
                start(job)
        assert time.monotonic() < end
    assert content(out) == expected

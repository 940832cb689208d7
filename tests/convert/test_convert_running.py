"""A conversion that is killed, whenever and wherever, goes on and makes the same."""

import contextlib
import dataclasses
import multiprocessing
import pathlib
import random
import shutil
import time

import kinds
import psutil
import pytest

from common.errors import UserError
from components.convert import running
from components.convert.convert import convert
from components.convert.options import Options

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


def test_a_manifest_is_not_written_over_shards_that_another_has_deleted(bucket, monkeypatch):
    options = Options(output="gs://demo/out", shards=3, processes=1)
    monkeypatch.setattr("components.convert.convert._write_page", lambda *_: running.output.discard(options.output))
    with pytest.raises(UserError, match=r"-of-\d+\.\w+ is missing or damaged"):
        convert(options)
    assert not [*bucket.iterdir()]


@pytest.mark.parametrize(
    ("place", "kills"),
    [("here", 4), ("bucket", 4)]
    + [pytest.param(place, 30, marks=pytest.mark.slow) for place in ("here", "bucket", "bucket to bucket")],
)
def test_killed_at_any_moment_goes_on(request, tmp_path, options, expected, content, place, kills):
    root, out = str(pathlib.Path(options.output).parent), tmp_path / "made"
    options = dataclasses.replace(options, output=str(out))
    if place != "here":
        bucket = request.getfixturevalue("busy_bucket")
        options, out = dataclasses.replace(options, output="gs://demo/made"), bucket / "made"
    if place == "bucket to bucket":
        shutil.copytree(root, bucket, dirs_exist_ok=True)
        sources = [options.source] if isinstance(options.source, str) else options.source
        one, *more = (path.replace(root, "gs://demo") for path in sources)
        options = dataclasses.replace(options, source=(one, *more) if more else one)
    chance, deadline = random.Random(kills), time.monotonic() + 240
    fork = multiprocessing.get_context("fork")  # which is at work at once: a command would mostly die of its imports
    while True:
        one = dataclasses.replace(options, processes=chance.randint(1, 2))
        process = fork.Process(target=convert, args=[one])
        process.start()
        joining, moment = chance.random() < 0.5, time.monotonic() + chance.uniform(0, 0.2)
        while process.is_alive() and kills and (time.monotonic() < moment or (joining and not [*out.glob("*-of-*")])):
            time.sleep(0.001)
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if kills and process.is_alive():
                main = psutil.Process(process.pid)
                chance.choice([main, *main.children()]).kill()
                kills -= 1
        process.join()
        if not process.exitcode:
            assert content(out) == expected
            if not kills:
                break
            shutil.rmtree(out)  # so fast that there are kills left
        assert time.monotonic() < deadline

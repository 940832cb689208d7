"""A conversion that is killed, whenever and wherever, goes on and makes the same."""

import contextlib
import dataclasses
import multiprocessing
import random
import shutil

import psutil
import pytest
from dataset_files import read_folder

from components.convert.convert import convert

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("kills", [4, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("place", ["here", "bucket"])
def test_killed_conversion_goes_on(request, tmp_path, options, expected, place, kills):
    source, output, out = options.source, f"{tmp_path}/out", tmp_path / "out"
    if place == "bucket":
        bucket = request.getfixturevalue("busy_bucket")
        shutil.copytree(source, bucket / "source")
        source, output, out = "gs://demo/source", "gs://demo/out", bucket / "out"
    chance = random.Random(kills)
    # It is at work at once; a command would mostly die of its imports.
    fork = multiprocessing.get_context("fork")
    while True:
        changes = {"source": source, "output": output, "processes": chance.randint(1, 2)}
        process = fork.Process(target=convert, args=[dataclasses.replace(options, **changes)])
        process.start()
        process.join(chance.uniform(0, 0.3) if kills else None)
        with contextlib.suppress(psutil.NoSuchProcess):  # It has ended meanwhile.
            if process.is_alive():
                main = psutil.Process(process.pid)
                chance.choice([main, *main.children()]).kill()
                kills -= 1
        process.join()
        if not process.exitcode:
            assert read_folder(out) == expected
            if not kills:
                break
            shutil.rmtree(out)  # It was so fast that there are kills left.

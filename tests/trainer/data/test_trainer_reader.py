import functools

import psutil
import pytest
from numbered import dataset, provided, reader_of

from common.errors import UserError


@pytest.mark.parametrize("cache", [None, "cache"])
def test_exchanged_files_are_error(tmp_path, cache):
    """Two files of one size, each with the other's name, are noticed without reading all of them.

    When a job starts, and between that and the opening of the files.
    """
    manifest = dataset(tmp_path / "data", 39, shape=(64, 64, 3))
    provide = functools.partial(provided, manifest, tmp_path / "data", cache and tmp_path / cache)
    place = provide()
    one, *_, other = sorted(place.glob("train-*.tfrecord"))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    for directory in (lambda: place, provide):
        with pytest.raises(UserError, match=r"train-0000[02]\S+ is not the file that the manifest"):
            reader_of(manifest, directory(), "mapped", 9)


@pytest.mark.slow
def test_large_split_trains_in_little_memory(make, tmp_path):
    manifest = dataset(tmp_path / "large", 200_000, shards=8, shape=(32, 32, 3), classes=10)
    size = sum(shard.bytes for shard in manifest.split("train").shards)
    peaks = []
    for reader in ("resident", "mapped"):
        job, memory = make(data=tmp_path / "large"), []
        flags = "--model numbered:network --batch-size 1000 --train-steps 600 --reader"
        job.start("chief", flags=f"{flags} {reader}")

        def is_watched(job=job, memory=memory):
            memory.append(psutil.Process(job.pid("chief-0")).memory_info())
            return max(job.steps("step"), default=0) >= 250  # More than an epoch.

        job.until(is_watched)
        peaks.append(max(one.rss - one.shared for one in memory))  # What no file stands behind.
    assert peaks[1] < peaks[0] - size / 2, (peaks, size)

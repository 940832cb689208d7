import collections
import multiprocessing
import pathlib

import numpy as np
import pytest
from PIL import Image

from common.errors import UserError
from components.convert.convert import convert
from components.convert.images import headers
from components.convert.options import Options
from components.convert.origin import Origin
from components.convert.writing import output


def images(root: pathlib.Path, encoding: str) -> dict[str, str]:
    for i in range(60):
        pixels = np.random.default_rng(i).integers(0, 256, (9, 4 + i % 5, 3), np.uint8)
        path = root / "images" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return {"dataset": "images", "source": str(root / "images"), "encoding": encoding, "image_size": "8x8"}


@pytest.fixture
def disk(monkeypatch) -> list[int]:
    """The free bytes of every disk, as its one element."""
    free, usage = [0], collections.namedtuple("Usage", "total used free")
    monkeypatch.setattr(output.shutil, "disk_usage", lambda path: usage(0, 0, free[0]))
    return free


def test_a_disk_that_is_too_small_for_the_rest_shows_after_the_first_piece(tmp_path, make_idx, disk):
    make_idx(tmp_path / "source", size=(28, 28), packed=False, train=4000)
    options = Options(dataset="idx", source=str(tmp_path / "source"), output=str(tmp_path / "out"), shards=4)
    with pytest.raises(UserError, match=r"needs about (?!0)[\d,]+ bytes more, and its disk has 0 free"):
        convert(options)
    assert not (tmp_path / "out").exists()
    disk[0] = 2 * 4000 * 784
    convert(options)


def test_more_shards_than_examples_are_refused_before_a_source_is_cut_up(tmp_path):
    with pytest.raises(UserError, match="--shards 99999: there are only 1797 training examples, or fewer"):
        Origin.of(Options(output=str(tmp_path), shards=99_999)).cut()


def test_shards_without_room_for_an_example_have_some(tmp_path, make_idx):
    make_idx(tmp_path / "source", train=20)
    options = Options(dataset="idx", source=str(tmp_path / "source"), output=str(tmp_path / "out"), shard_mb=1e-9)
    shards = [shard for split in convert(options).splits.values() for shard in split.shards]
    assert sum(shard.examples for shard in shards) == 20


def test_where_nothing_is_written_no_room_is_needed(tmp_path, disk):
    options = Options(output=str(tmp_path / "out"))
    disk[0] = 10**9
    manifest = convert(options)
    disk[0] = 0
    assert convert(options) == manifest


def test_image_files_kept_as_pixels_are_decoded_once(tmp_path, monkeypatch):
    source, decode, decoded = images(tmp_path, "raw"), headers.decode, multiprocessing.Value("i", 0)

    def counted(data, *args, **kwargs):
        with decoded:
            decoded.value += 1
        return decode(data, *args, **kwargs)

    monkeypatch.setattr(headers, "decode", counted)
    fingerprints = set()
    for processes in (1, 2):
        decoded.value = 0
        manifest = convert(Options(**source, output=str(tmp_path / f"{processes}"), processes=processes))
        fingerprints.add(manifest.fingerprint)
        assert sum(split.examples for split in manifest.splits.values()) == decoded.value == 60
    assert len(fingerprints) == 1

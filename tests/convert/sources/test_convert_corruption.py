"""A file of a dataset that has changed is named, whatever has happened to it."""

import random

import pytest
import trips
from dataset_files import convert_to, read_folder, write_files

from common.errors import UserError
from common.manifest import FILE, Manifest
from components.convert import output


@pytest.fixture(scope="module", params=["images", "rows with an index"])
def dataset(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("dataset")
    source = {} if request.param == "images" else trips.write(root, trips.rows(300))
    convert_to(root / "out", **source, shards=5)
    return root / "out"


@pytest.mark.parametrize("harm", ["flip", "cut", "append", "exchange", "delete"])
def test_damaged_file_is_named(dataset, harm):
    manifest, files = Manifest.load(dataset), read_folder(dataset)
    names, chance = sorted(files.keys() - {output.PAGE}), random.Random(0)
    for _ in range(9):
        name, other = chance.sample(names, 2)
        data, place = files[name], chance.randrange(len(files[name]))
        flipped = bytes([data[place] ^ chance.randrange(1, 256)])
        contents = {
            "flip": data[:place] + flipped + data[place + 1 :],
            "cut": data[:place],
            "append": data + b"\0",
            "exchange": files[other],
        }
        (dataset / name).unlink()
        write_files(dataset, {name: contents[harm]} if harm in contents else {})
        try:
            output.verify(str(dataset), Manifest.load(dataset))
        except (UserError, FileNotFoundError) as error:
            assert str(dataset / name) in str(error)
        else:
            assert name == FILE and Manifest.load(dataset) == manifest
        write_files(dataset, files)

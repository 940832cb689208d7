import gzip
import hashlib
import pathlib

import numpy as np
import pytest
from divided import whole

from common.errors import UserError
from components.convert.sources.registry import READERS, find_reader


def test_embedded_digits_are_the_original_ones():
    source = whole(find_reader("digits"))
    assert list(source.splits) == ["train"]
    images, labels = source.splits["train"].values()
    assert images.shape == (1797, 8, 8, 1)
    assert (images.min(), images.max()) == (0, 16) == source.inputs[0].value_range
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    origin = READERS["digits"].embedded.joinpath("ORIGIN.md").read_text()
    for file in READERS["digits"].files(None):
        assert hashlib.sha256(gzip.decompress(pathlib.Path(file.path).read_bytes())).hexdigest() in origin


def test_splits_that_do_not_fit_name_a_file(tmp_path, make_idx):
    def refused(dataset: str) -> str:
        with pytest.raises(UserError) as error:
            whole(find_reader(dataset), str(tmp_path))
        return str(error.value)

    make_idx(tmp_path, classes=11, train=20, test=5)
    assert "train-labels-idx1-ubyte.gz: record 10 has label 10; mnist has classes 0 to 9" in refused("mnist")
    make_idx(tmp_path, classes=300, test=15)
    assert whole(find_reader("idx"), str(tmp_path)).class_names == tuple(map(str, range(15)))  # of any split
    make_idx(tmp_path, size=(4, 4), test=5)
    assert "t10k-images-idx3-ubyte.gz: 5 x 4 x 4 pixels; train has images of 5 x 4" in refused("idx")
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes((tmp_path / "t10k-labels-idx1-ubyte.gz").read_bytes())
    assert (
        "train-images-idx3-ubyte.gz: 20 x 5 x 4 pixels; train has images of 5 x 4, and there are 5 labels"
        in refused("mnist")
    )


OPTIONS = {"schema": "x.yaml", "image_size": (4, 5), "encoding": "raw"}


@pytest.mark.parametrize("dataset", [*READERS, "tfds:mnist"])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_reader_is_given_the_options_that_it_takes_and_no_others(dataset, option):
    plain = find_reader(dataset, **dict.fromkeys(OPTIONS))
    if option in plain.takes:
        reader = find_reader(dataset, **{option: OPTIONS[option]})
        assert getattr(reader, option) == OPTIONS[option] and reader.takes == plain.takes and reader != plain
    else:
        shown = "--image-size 4x5" if option == "image_size" else f"--{option.replace('_', '-')} {OPTIONS[option]}"
        with pytest.raises(UserError, match=f"{shown} means nothing to dataset '{dataset}'; .* use --dataset [a-z]+"):
            find_reader(dataset, **{option: OPTIONS[option]})

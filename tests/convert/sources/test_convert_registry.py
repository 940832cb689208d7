import dataclasses

import pytest

from common.errors import UserError
from components.convert.sources.registry import DOWNLOADED, SOURCES, find_source
from components.convert.sources.tfds import TfdsSource

OPTIONS = {
    "schema": "x.yaml",
    "image_size": (4, 5),
    "encoding": "raw",
    "skip_bad": 3,
}


@pytest.mark.parametrize("dataset", [*SOURCES, "tfds:mnist"])
@pytest.mark.parametrize("option", OPTIONS)
def test_option_is_taken_or_refused(dataset, option):
    plain, chosen = find_source(dataset, "x", **dict.fromkeys(OPTIONS)), {option: OPTIONS[option]}
    if option in plain.takes:
        assert find_source(dataset, "x", **chosen) == dataclasses.replace(plain, **chosen) != plain
    else:
        flag = f"--{option.replace('_', '-')}"
        with pytest.raises(
            UserError, match=f"{flag} means nothing to dataset '{dataset}'; .* use --dataset [a-z]+"
        ):
            find_source(dataset, "x", **chosen)


@pytest.mark.parametrize("dataset", DOWNLOADED)
def test_dataset_without_files_is_of_tfds(dataset):
    theirs = find_source(dataset, None)
    assert type(theirs) is TfdsSource and theirs.name == dataset
    assert find_source(dataset, "x") == SOURCES[dataset]

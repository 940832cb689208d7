import pytest

from common.errors import UserError
from components.convert.sources.registry import SOURCES, find_source, source_digest

OPTIONS = {"schema": "x.yaml", "image_size": (4, 5), "encoding": "raw", "skip_bad": 3, "export_dir": "gs://b/d"}


@pytest.mark.parametrize("dataset", [*SOURCES, "tfds:mnist"])
@pytest.mark.parametrize("option", OPTIONS)
def test_option_is_taken_or_refused(dataset, option):
    plain = find_source(dataset, **dict.fromkeys(OPTIONS))
    if option in plain.takes:
        source = find_source(dataset, **{option: OPTIONS[option]})
        assert getattr(source, option) == OPTIONS[option] and source.takes == plain.takes and source != plain
    else:
        flag = f"--{option.replace('_', '-')}"
        with pytest.raises(UserError, match=f"{flag} means nothing to dataset '{dataset}'; .* use --dataset [a-z]+"):
            find_source(dataset, **{option: OPTIONS[option]})


def test_unknown_dataset_names_the_nearest():
    with pytest.raises(UserError, match=r"unknown dataset 'mnits'; did you mean 'mnist'\?.*, or tfds:NAME"):
        find_source("mnits")


def test_sources_have_their_names():
    assert all(source.name == name for name, source in SOURCES.items())
    assert {"digits", "mnist", "cifar10", "cifar100", "taxi", "csv", "parquet", "images", "tfrecord"} <= SOURCES.keys()


def test_digest_follows_contents_not_the_folder(tmp_path, make_idx):
    for name in ("one", "two"):
        make_idx(tmp_path / name, train=20, test=5, packed=False)
    digest = source_digest("mnist", str(tmp_path / "one"))
    assert digest == source_digest("mnist", str(tmp_path / "two")) and len(digest) == 64
    (tmp_path / "two" / "t10k-labels-idx1-ubyte").write_bytes(b"?")
    assert digest != source_digest("mnist", str(tmp_path / "two"))
    with pytest.raises(UserError, match="no such file or directory"):
        source_digest("mnist", str(tmp_path / "three"))

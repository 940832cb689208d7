import pathlib
import re
from collections.abc import Callable

import numpy as np
import pytest
from divided import whole
from PIL import Image

from common.errors import UserError
from common.manifest import Manifest
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.image_folder import FolderReader


@pytest.fixture
def folder(tmp_path) -> Callable[..., pathlib.Path]:
    """Makes a folder of images: by path their sizes (height, width), or the bytes of what is none."""

    def make(files: dict[str, tuple[int, int] | bytes], mode: str = "RGB") -> pathlib.Path:
        root = tmp_path / "source"
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                pixels = np.random.default_rng(len(name) + ord(name[0])).integers(0, 256, (*content, 3), np.uint8)
                Image.fromarray(pixels).convert(mode).save(path)
        return root

    return make


def many(classes: str = "abc", count: int = 12, suffix: str = ".png", size: tuple[int, int] = (6, 5), prefix: str = ""):
    return {f"{prefix}{c}/{i}{suffix}": size for c in classes for i in range(count)}


def options(root: pathlib.Path, output: str = "out", **others) -> Options:
    return Options(dataset="images", source=str(root), output=str(root.parent / output), shards=2, **others)


def test_small_images_of_one_size_are_stored_as_pixels(folder, held, capsys):
    root = folder(many())
    manifest = convert(options(root, validation_fraction=0, test_fraction=0))
    assert manifest.feature("image").shape == (6, 5, 3) and manifest.feature("image").encoding is None
    assert manifest.class_names == ("a", "b", "c") and manifest.splits["train"].class_histogram == (12, 12, 12)
    assert "6 x 5 pixels are stored as pixels, 6 x 5 x 3" in capsys.readouterr().out
    records = held(root.parent / "out")
    stored = sorted((record["label"], record["image"]) for record in records)
    assert stored == sorted(("abc".index(name[0]), np.asarray(Image.open(root / name)).tobytes()) for name in many())


def test_images_that_differ_in_size_are_stored_as_they_are(folder, held, capsys):
    root = folder({**many("ab", suffix=".jpg"), "a/large.png": (70, 80)})
    manifest = convert(options(root, validation_fraction=0, test_fraction=0))
    image = manifest.feature("image")
    assert (image.encoding, image.shape, image.dtype) == ("image", (224, 224, 3), "uint8")
    assert image.offset is image.num_bytes is manifest.record_bytes is None
    assert image.value_range == (0.0, 255.0) and manifest.feature("label").offset
    assert "2 sizes from 6 x 5 to 70 x 80" in capsys.readouterr().out
    records = held(root.parent / "out")
    assert {record["image"] for record in records} == {path.read_bytes() for path in root.glob("*/*")}
    for shard in manifest.splits["train"].shards:
        starts = np.frombuffer((root.parent / "out" / shard.index).read_bytes(), "<i8")
        assert len(starts) == shard.examples + 1 and starts[-1] == shard.bytes
    assert Manifest.load(root.parent / "out") == manifest


@pytest.mark.parametrize(
    ("size", "given", "shape", "encoding"),
    [
        ((6, 5), {}, (6, 5, 3), None),
        ((6, 5), {"encoding": "source"}, (6, 5, 3), "image"),
        ((6, 5), {"encoding": "source", "image_size": "8x9"}, (8, 9, 3), "image"),
        ((6, 5), {"image_size": "8x9"}, (8, 9, 3), None),
        ((128, 170), {}, (128, 170, 3), None),
        ((128, 171), {}, (128, 171, 3), "image"),
        ((128, 171), {"encoding": "raw"}, (128, 171, 3), None),
        ((128, 171), {"image_size": "200x200"}, (200, 200, 3), None),
    ],
)
def test_the_rule_and_how_to_overrule_it(folder, size, given, shape, encoding):
    manifest = convert(options(folder(many("ab", 2, size=size)), **given))
    assert (manifest.feature("image").shape, manifest.feature("image").encoding) == (shape, encoding)
    assert {name: manifest.arguments[name] for name in given} == given


def test_one_channel_only_if_all_are_gray(folder):
    root = folder(many("ab"), mode="L")
    assert convert(options(root)).feature("image").shape == (6, 5, 1)
    folder({"b/colour.png": (6, 5)})
    assert convert(options(root, output="new")).feature("image").shape == (6, 5, 3)


@pytest.mark.parametrize("validation", ["val", "validation"])
def test_given_splits_are_kept(folder, validation):
    files = {**many(prefix="train/"), **many(count=3, prefix="test/"), **many("ab", 2, prefix=f"{validation}/")}
    manifest = convert(options(folder(files)))
    assert {name: split.class_histogram for name, split in manifest.splits.items()} == {
        "train": (12, 12, 12),
        "validation": (2, 2, 0),
        "test": (3, 3, 3),
    }


def test_what_is_left_out_is_told_suffixes_in_capitals_count_and_a_class_may_be_called_train(folder, capsys):
    strays = ("notes.txt", "bus/movie.gif", "bus/inner/1.png", "train/.hidden.png", ".git/1.png")
    images = {f"{c}/{name}": (4, 4) for c in ("train", "bus") for name in ("1.png", "X.JPEG", "Y.PNG")}
    manifest = convert(options(folder({**images, **dict.fromkeys(strays, b"")}), test_fraction=0))
    assert "left out: bus/inner/, bus/movie.gif, notes.txt (only PNG" in capsys.readouterr().out
    assert manifest.class_names == ("bus", "train") and sum(s.examples for s in manifest.splits.values()) == 6


@pytest.mark.parametrize("flags", [(), ("--image-size", "4x4"), ("--encoding", "source")])
@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: b"GIF89a", lambda data: data[:-30]])
def test_a_broken_image_is_named_and_nothing_is_left(folder, fails, flags, damage):
    root = folder(many("ab", suffix=".png"))
    path = root / "b" / "7.png"
    path.write_bytes(damage(path.read_bytes()))
    line = fails("--dataset", "images", "--source", root, "--output", root.parent / "out", *flags)
    assert str(path) in line
    assert not (root.parent / "out").exists()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"notes.txt": b""}, "no PNG or JPEG files in folders of it"),
        ({"1.png": (4, 4)}, "no PNG or JPEG files in folders of it"),
        ({"flowers/rose/1.png": (4, 4), "flowers/lily/1.png": (4, 4)}, "no PNG or JPEG files in folders of it"),
        (many("a"), "has one class, 'a'"),
        ({**many("ab", prefix="train/"), **many("c", prefix="test/")}, "class 'c' has no images for training"),
        ({**many("ab", prefix="train/"), "test/1.png": (4, 4)}, "source/test: no PNG or JPEG files"),
        ({**many("ab", prefix="train/"), **many("ab", prefix="val/"), **many("ab", prefix="validation/")}, "keep one"),
        ({**many("ab"), "a/x.png": (7, 7)}, r"images differ in size.*a/x.png is 7 x 7.*--image-size"),
    ],
)
def test_a_folder_that_is_none_of_the_two_layouts_or_has_no_one_size_for_pixels_is_told(folder, fails, files, message):
    root = folder(files)
    line = fails("--dataset", "images", "--source", root, "--output", root.parent / "out", "--encoding", "raw")
    assert re.search(message, line) and str(root) in line and not (root.parent / "out").exists()


def test_an_image_that_is_gone_or_has_changed_when_it_is_read_is_told(folder):
    root = folder(many("ab"))
    reader = FolderReader(encoding="source")
    cut = reader.cut(str(root), pieces=2, piece_bytes=1 << 26)
    source = reader.open(cut)
    source = source.settled([source.look(piece, None) for piece in cut.pieces])
    path = root / cut.facts["names"][15]
    path.write_bytes(b"longer" + path.read_bytes())
    with pytest.raises(UserError, match=f"{path}: it has changed or gone since it was looked at"):
        list(source.blocks(cut.pieces[1]))
    path.unlink()
    with pytest.raises(UserError, match=f"{path}: it has changed or gone since it was looked at"):
        list(source.blocks(cut.pieces[1]))
    with pytest.raises(UserError, match=f"{path}: it has changed or gone since it was looked at"):
        source.look(cut.pieces[1], None)


@pytest.mark.parametrize("encoding", ["raw", "source"])
def test_any_pieces_have_the_same_images_in_the_same_places(folder, encoding):
    root = folder({**many(prefix="train/"), **many(count=3, prefix="val/")})
    reader, made = FolderReader(encoding=encoding), []
    for pieces, piece_bytes, least in ((1, 1 << 40, 1), (7, 1 << 40, 7), (99, 1 << 40, 36), (2, 500, 8), (1, 1, 36)):
        found = whole(reader, str(root), pieces=pieces, piece_bytes=piece_bytes)
        made.append(
            {split: {name: c.tolist() for name, c in columns.items()} for split, columns in found.splits.items()}
        )
        assert [i for block in found.blocks["train"] for i in block.positions] == list(range(36))
        assert made[-1] == made[0] and len(found.blocks["train"]) >= least


def test_an_orientation_that_is_not_applied_is_told(folder, capsys):
    root = folder(many("ab", suffix=".jpg"))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (5, 6)).save(root / "a" / "phone.jpg", exif=exif)
    convert(options(root))
    assert f"orientation of 1 images is not applied, first of {root}/a/phone.jpg" in capsys.readouterr().out

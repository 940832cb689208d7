import zlib

import numpy as np
import pytest
from dataset_files import encode_image, write_files
from opened import read_all
from PIL import Image

from components.convert.sources import images
from components.convert.sources.images import FolderSource
from tests.errors import user_error

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def picture(name, height=6, width=5, mode="RGB"):
    """Returns an image file of random pixels, which follow from the name."""
    random = np.random.default_rng([*name.encode()])
    pixels = random.integers(0, 256, (height, width, 3), np.uint8)
    return encode_image(Image.fromarray(pixels).convert(mode))


def many(classes="a b", count=12, prefix="", **look):
    """Returns so many images of each class, by their names."""
    names = [f"{prefix}{label}/{i}.png" for label in classes.split() for i in range(count)]
    return {name: picture(name, **look) for name in names}


def read(root, *, shards=None, **options):
    return read_all(FolderSource(**options), str(root), shards=shards)


def test_images_of_one_size(tmp_path):
    files = many("bus train")  # No folder of a split, though it is called so.
    opened = read(write_files(tmp_path, files))
    (image,) = opened.examples.inputs
    assert (image.encoding, image.shape, image.value_range) == (None, (6, 5, 3), (0.0, 255.0))
    assert opened.examples.class_names == ("bus", "train")
    columns = opened.splits["train"]
    pairs = sorted(zip(columns["label"], columns["image"].tolist(), strict=True))
    pixels = [np.asarray(Image.open(tmp_path / name)).tolist() for name in files]
    assert pairs == sorted(zip([0] * 12 + [1] * 12, pixels, strict=True))


def test_images_of_several_sizes(tmp_path, capsys):
    exif = Image.Exif()
    exif[0x0112] = 6  # It is not applied.
    files = {**many(), "a/phone.jpg": encode_image(Image.new("RGB", (80, 70)), "JPEG", exif=exif)}
    files["a/611.png"] = encode_image(Image.new("L", (80, 70)))  # By its hash it is the last one.
    opened = read(write_files(tmp_path, files))
    (image,) = opened.examples.inputs
    assert (image.encoding, image.shape) == ("image", (224, 224, 3))
    assert "orientation of 1 images is not applied" in capsys.readouterr().out
    assert sorted(opened.splits["train"]["image"].to_pylist()) == sorted(files.values())
    assert opened.examples.most["image"] == max(map(len, files.values()))


@pytest.mark.parametrize(
    ("width", "mode", "options", "encoding"),
    [
        (9, "RGBA", {"encoding": "source"}, "image"),
        (170, "P", {}, None),
        (171, "RGB", {}, "image"),
        (171, "LA", {"encoding": "raw", "image_size": (8, 9)}, None),
    ],
)
def test_storage_follows_size_and_options(tmp_path, width, mode, options, encoding):
    root = write_files(tmp_path, many(count=1, height=128, width=width, mode=mode))
    (image,) = read(root, **options).examples.inputs
    assert image.encoding == encoding
    channels = 1 if mode == "LA" else 3
    assert image.shape == (*options.get("image_size", (128, width)), channels)


def test_split_folders_are_kept(tmp_path, capsys):
    for files in (many(prefix="Training/"), many("a", 2, "val/"), many(count=3, prefix="testing/")):
        write_files(tmp_path, files)
    strays = ["Training/a/in/1.png", "notes.txt", "old/a/1.png", "val/b/x.gif"]
    write_files(tmp_path, dict.fromkeys([*strays, ".git/1.png", "val/a/.hidden.png"], b""))
    counts = [(split, len(columns["label"])) for split, columns in read(tmp_path).splits.items()]
    assert counts == [("train", 24), ("validation", 2), ("test", 6)]
    printed = capsys.readouterr().out
    assert f"{tmp_path}: {len(strays)} left out: {', '.join(strays)} (only PNG" in printed
    assert "val: 1 left out: b (only folders" in printed


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (many("a"), "has one class"),
        ({**many(prefix="train/"), **many("c", 1, "test/")}, "class 'c' has no im"),
        ({"a/1.gif": b"", "b.png": b""}, "holds no PNG and JPEG files in folders of classes"),
        (many(prefix="test/"), "has no images for training"),
        ({**many(), "a/x.png": picture("", 7, 7)}, "/a/x.png is 7 x 7.*--image-size"),
        ({**many(), "b/x.png": encode_image(PIXELS, "GIF")}, "/b/x.png: is no PNG"),
        ({**many(), "b/x.png": picture("")[:99]}, "/b/x.png: broken image"),
    ],
)
def test_unusable_folder_is_refused(tmp_path, files, message):
    root = write_files(tmp_path, files)
    with user_error(f"{root}.*{message}"):
        read(root, encoding="raw")


def test_pieces_and_blocks_lose_nothing(tmp_path):
    """Many pieces, and blocks of a few large images, have the records of one."""
    write_files(tmp_path, {**many(count=4, prefix="train/"), **many(count=1, prefix="val/")})
    one, other = (read(tmp_path, image_size=(900, 900), shards=shards) for shards in (1, 99))
    assert len(other.examples.pieces) == 8 + 2
    np.testing.assert_equal(other.splits, one.splits)


def test_added_images_move_no_other(tmp_path):
    """The key of an image stays when others are added, and however it is stored."""

    def keys(**options):
        return {key for block in read(tmp_path, **options).blocks["train"] for key in block.keys}

    write_files(tmp_path, many())
    before = keys()
    write_files(tmp_path, {**many("c d", 3, width=9), "a/x.png": picture("", 90, 200)})
    after = keys(shards=7)
    assert len(after) == len(before) + 7 and before < after == keys(image_size=(4, 4))


def test_resize_is_same_everywhere():
    """An image is cut to its centre, and resized with integers."""
    ramp = np.arange(600, dtype=np.uint32).reshape(20, 30) * 7 % 256
    data = encode_image(ramp.astype(np.uint8))
    pixels = images.decode(data, "place", channels=1, size=(5, 7))
    assert zlib.crc32(pixels.tobytes()) == 2689462674
    assert images.decode(data, "place", channels=3, size=(1, 1000)).shape == (1, 1000, 3)


def test_too_many_pixels_are_refused(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 599)
    with user_error(r"^place: .*(too many|exceeds)"):
        images.require_whole(encode_image(PIXELS), "place")


def test_damaged_bytes_are_noticed():
    png, jpeg = encode_image(PIXELS), encode_image(PIXELS, "JPEG")
    damaged = [data[:end] for data in (png, jpeg) for end in range(20, len(data) * 9 // 10, 97)]
    for i in range(50, len(png) - 20, 97):
        damaged.append(png[:i] + bytes([png[i] ^ 1]) + png[i + 1 :])
    for data in damaged:
        with user_error(r"^place: "):
            images.require_whole(data, "place")

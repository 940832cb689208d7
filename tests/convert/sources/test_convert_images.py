import functools
import io
import os
import pathlib
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opened import Opened, read_all
from PIL import Image

from common.errors import UserError
from components.convert.sources import images
from components.convert.sources.images import FolderSource
from components.convert.splits import Splits

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def write(
    root: pathlib.Path, files: dict[str, tuple[int, int] | bytes], mode: str = "RGB"
) -> pathlib.Path:
    """Writes files below a folder: images of those heights and widths, or bytes."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            pixels = np.random.default_rng(zlib.crc32(name.encode())).integers(
                0, 256, (*content, 3), np.uint8
            )
            Image.fromarray(pixels).convert(mode).save(path)
    return root


@pytest.fixture
def folder(tmp_path) -> Callable[..., pathlib.Path]:
    return functools.partial(write, tmp_path / "source")


def many(classes: str = "ab", count: int = 12, size: tuple[int, int] = (6, 5), prefix: str = ""):
    return {f"{prefix}{c}/{i}.png": size for c in classes for i in range(count)}


def read(root: object, **options) -> Opened:
    shards = options.pop("shards", None)
    return read_all(FolderSource(**options), str(root), shards=shards)


def drawn(root: object, **options) -> dict[int, int]:
    """Returns the split of each image by its key."""
    result = {}
    for block in read(root, **options).blocks["train"]:
        places = Splits().assign(block.keys, native="train", natives={"train"})
        result |= zip(block.keys.tolist(), places.tolist(), strict=True)
    return result


def test_images_of_one_size(folder, capsys):
    root = folder(many())
    opened = read(root)
    (image,) = opened.examples.inputs
    assert (image.encoding, image.shape, image.value_range) == (None, (6, 5, 3), (0.0, 255.0))
    assert opened.examples.class_names == ("a", "b")
    assert "images of 6 x 5 pixels are stored as pixels, 6 x 5 x 3" in capsys.readouterr().out
    columns = opened.splits["train"]
    pairs = zip(columns["label"].tolist(), columns["image"].tolist(), strict=True)
    expected = [
        ("ab".index(name[0]), np.asarray(Image.open(root / name)).tolist()) for name in many()
    ]
    assert sorted(pairs) == sorted(expected)


def test_images_of_several_sizes(folder, capsys):
    root = folder({**many(), "a/large.jpg": (70, 80)})
    opened = read(root)
    (image,) = opened.examples.inputs
    assert (image.encoding, image.shape) == ("image", (224, 224, 3))
    assert "2 sizes from 6 x 5 to 70 x 80" in capsys.readouterr().out
    files = [path.read_bytes() for path in root.glob("*/*")]
    assert sorted(opened.splits["train"]["image"].to_pylist()) == sorted(files)
    assert opened.examples.most["image"] == max(map(len, files))
    (block,) = opened.blocks["train"]
    assert (
        sorted(block.measures["image.height"])[-2:] == [6, 70]
        and sum(block.measures["image.width"]) == 24 * 5 + 80
    )


@pytest.mark.parametrize(
    ("width", "options", "encoding"),
    [
        (170, {"encoding": "source", "image_size": (8, 9)}, "image"),
        (170, {}, None),
        (171, {}, "image"),
        (171, {"encoding": "raw"}, None),
        (171, {"image_size": (8, 9)}, None),
    ],
)
def test_storage_follows_size_and_options(folder, width, options, encoding):
    (image,) = read(folder(many(count=1, size=(128, width))), **options).examples.inputs
    assert image.encoding == encoding
    assert image.shape == (*options.get("image_size", (128, width)), 3)


@pytest.mark.parametrize(
    ("modes", "channels"), [(["1", "L", "LA"], 1), (["L", "RGB"], 3), (["P"], 3), (["RGBA"], 3)]
)
def test_channels_follow_modes(folder, modes, channels):
    for mode in modes:
        root = folder(many(count=1, prefix=f"train/{mode}"), mode)
    assert read(root).examples.inputs[0].shape == (6, 5, channels)


def test_split_folders_are_kept(folder, capsys):
    files = {
        **many(prefix="Training/"),
        **many("a", 2, prefix="val/"),
        **many(count=3, prefix="testing/"),
    }
    root = folder({**files, "old/a/1.png": (6, 5)})
    counts = [(split, len(columns["label"])) for split, columns in read(root).splits.items()]
    assert counts == [("train", 24), ("validation", 2), ("test", 6)]
    assert f"{root}: left out: old/a/1.png (" in capsys.readouterr().out


def test_stray_files_are_printed(folder, capsys):
    strays = (
        "notes.txt",
        "bus/movie.gif",
        "bus/inner/1.png",
        "train/.hidden.png",
        ".git/1.png",
        "tram/readme",
    )
    pictures = {
        f"{c}/{name}": (4, 4) for c in ("train", "bus") for name in ("1.png", "X.JPEG", "Y.PNG")
    }
    root = folder({**pictures, **dict.fromkeys(strays, b"")})
    (root / "empty").mkdir()
    os.mkfifo(root / "bus" / "pipe.png")
    opened = read(root)
    lines = capsys.readouterr().out.splitlines()
    names = "bus/inner/1.png, bus/movie.gif, bus/pipe.png, notes.txt, tram/readme"
    assert lines[0].startswith(f"{root}: left out: {names} (only PNG")
    assert lines[1] == f"{root}: left out: empty, tram (no PNG or JPEG files in these folders)"
    assert (
        opened.examples.class_names == ("bus", "train")
        and len(opened.splits["train"]["label"]) == 6
    )


@pytest.mark.parametrize("encoding", ["raw", "source"])
@pytest.mark.parametrize("length", [0, -30])
def test_broken_image_is_named(folder, encoding, length):
    root = folder(many())
    path = root / "b" / "7.png"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(UserError, match=f"^{path}: [^\n]*$"):
        read(root, encoding=encoding)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"1.png": (4, 4)}, "no PNG or JPEG files in folders of it"),
        (many("a"), "has one class, 'a'"),
        (
            {**many(prefix="train/"), **many("c", prefix="test/")},
            "class 'c' has no images for training",
        ),
        ({**many(prefix="train/"), "test/1.png": (4, 4)}, "source/test: no PNG or JPEG files"),
        ({**many(prefix="train/"), **many(prefix="val/"), **many(prefix="valid/")}, "keep one"),
        ({**many(), "a/x.png": (7, 7)}, r"images differ in size.*a/x.png is 7 x 7.*--image-size"),
    ],
)
def test_unusable_folder_is_refused(folder, files, message):
    root = folder(files)
    with pytest.raises(UserError, match=message) as error:
        read(root, encoding="raw")
    assert str(root) in str(error.value)


@pytest.mark.parametrize("options", [{"encoding": "source"}, {"image_size": (900, 900)}])
def test_pieces_and_blocks_lose_nothing(folder, options):
    """The records are those of one piece, whatever the number of pieces, and of blocks of a few large images."""
    root = folder({**many(count=4, prefix="train/"), **many(count=1, prefix="val/")})
    expected = read(root, **options, shards=1).splits
    for shards, num_pieces in ((3, 3 + 1), (99, 8 + 2)):
        opened = read(root, **options, shards=shards)
        assert len(opened.examples.pieces) == num_pieces
        for split, count in (("train", 8), ("validation", 2)):
            assert len(expected[split]["label"]) == count
            for name, values in opened.splits[split].items():
                assert np.array_equal(values, expected[split][name])


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_orientation_is_printed_not_applied(folder, capsys, suffix):
    root = folder(many(count=1))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (5, 6)).save(root / "a" / f"phone.{suffix}", exif=exif)
    assert read(root).splits["train"]["image"].shape == (3, 6, 5, 3)
    assert (
        f"orientation of 1 images is not applied, first of {root}/a/phone.{suffix}"
        in capsys.readouterr().out
    )


@given(data=st.data())
def test_added_images_move_no_other(tmp_path_factory, data):
    """An image stays in its split when others are added, whatever their number, names and sizes, and however it is stored."""
    root = tmp_path_factory.mktemp("images")
    before = drawn(write(root, many(count=20)))
    assert {*before.values()} == {0, 1, 2}
    names = st.from_regex(r"[a-e]/[a-z]{1,3}[.]png", fullmatch=True)
    added = data.draw(
        st.dictionaries(names, st.sampled_from([(6, 5), (3, 3), (9, 200)]), min_size=1, max_size=5)
    )
    after = drawn(write(root, added), shards=data.draw(st.none() | st.integers(1, 9)))
    assert len(after) == len(before) + len(added) and before.items() <= after.items()
    assert drawn(root, image_size=(4, 4)) == after


def encode(pixels: np.ndarray | Image.Image, kind: str = "PNG") -> bytes:
    """Returns an image as a file."""
    stream = io.BytesIO()
    image = Image.fromarray(pixels) if isinstance(pixels, np.ndarray) else pixels
    image.save(stream, kind)
    return stream.getvalue()


def decode(
    pixels: np.ndarray | Image.Image, channels: int = 3, size: tuple[int, int] = (20, 30)
) -> np.ndarray:
    return images.decode(encode(pixels), "place", channels=channels, size=size)


GRAY = PIXELS[..., :1]
FEW = Image.fromarray(PIXELS).quantize(16)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (PIXELS, PIXELS),
        (np.concatenate([PIXELS, GRAY], axis=2), PIXELS),
        (FEW, np.asarray(FEW.convert("RGB"))),
        (GRAY[..., 0], np.repeat(GRAY, 3, axis=2)),
        (GRAY[..., 0], GRAY),
        (GRAY[..., 0].astype(np.uint16) * 256 + 255, GRAY),
        (GRAY[..., 0] > 127, (GRAY > 127) * 255),
    ],
    ids=["colour", "alpha", "palette", "gray as colour", "gray", "16 bits", "1 bit"],
)
def test_png_decodes_to_channels(image, expected):
    np.testing.assert_array_equal(decode(image, expected.shape[2]), expected)


def test_resize_crops_center():
    bars = np.zeros((20, 40, 3), np.uint8)
    bars[:, 10:30] = 255  # The central square.
    assert (decode(bars, size=(8, 8)) == 255).all()
    for size in ((64, 48), (1, 1000), (1000, 1)):
        assert decode(PIXELS[:1, :1], size=size).shape == (*size, 3)


def test_resize_is_same_everywhere():
    ramp = np.arange(600, dtype=np.uint32).reshape(20, 30) * 7 % 256
    assert zlib.crc32(decode(ramp.astype(np.uint8), 1, size=(5, 7)).tobytes()) == 2689462674


def png(width: int, height: int) -> bytes:
    """Returns a file whose head promises so many pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    packed = (struct.pack(">I", len(body)) + kind + body for kind, body in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        part + struct.pack(">I", zlib.crc32(part[4:])) for part in packed
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (encode(PIXELS, "GIF"), "no PNG or JPEG"),
        (png(30, 20), "broken image"),
        (png(20_000, 20_000), "too many|exceeds"),
        (png(10_000, 10_000), "10000 x 10000 pixels are too many"),
    ],
    ids=["GIF", "no pixels", "bomb", "large"],
)
def test_no_image_is_refused(data, message, recwarn):
    with pytest.raises(UserError, match=f"^place: .*({message})[^\n]*$"):
        images.require_whole(data, "place")
    assert not recwarn


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_cut_file_is_refused(kind):
    data = encode(PIXELS, kind)
    for length in range(20, len(data) * 9 // 10, 97):
        with pytest.raises(UserError, match=r"^place: "):
            images.require_whole(data[:length], "place")


def test_flipped_byte_of_png_is_refused():
    data = encode(PIXELS)
    for i in range(50, len(data) - 20, 97):
        with pytest.raises(UserError, match=r"^place: broken image"):
            images.require_whole(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :], "place")

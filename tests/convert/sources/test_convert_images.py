import io
import os
import pathlib
import pickle
import shutil
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from common.errors import UserError
from components.convert.hashes import content_hashes
from components.convert.source import Opening
from components.convert.sources import images
from components.convert.sources.images import FolderSource
from components.convert.splits import SPLITS, Splits

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def write(root: pathlib.Path, files: dict[str, tuple[int, int] | bytes], mode: str = "RGB") -> pathlib.Path:
    """Writes files below a folder: images of those heights and widths, or bytes."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            pixels = np.random.default_rng(zlib.crc32(name.encode())).integers(0, 256, (*content, 3), np.uint8)
            Image.fromarray(pixels).convert(mode).save(path)
    return root


@pytest.fixture
def folder(tmp_path) -> Callable[..., pathlib.Path]:
    return lambda *content: write(tmp_path / "source", *content)


def many(classes: str = "abc", count: int = 12, suffix: str = ".png", size: tuple[int, int] = (6, 5), prefix: str = ""):
    return {f"{prefix}{c}/{i}{suffix}": size for c in classes for i in range(count)}


def opened(root: object, *, shards: int | None = None, **options) -> images.FolderExamples:
    """Opens a folder, as another process would have it."""
    opening = Opening(directory="/nowhere", splits=Splits(), shards=shards)
    return pickle.loads(pickle.dumps(FolderSource(**options).open(str(root), opening)))


def records(examples: images.FolderExamples, split: str = "train") -> list[tuple[int, bytes]]:
    """Returns label and image of each record of a split."""
    result = []
    for piece in (piece for piece in examples.pieces if piece.split == split):
        for block in examples.blocks(piece):
            stored = block.columns["image"]
            stored = [image.tobytes() for image in stored] if isinstance(stored, np.ndarray) else stored.to_pylist()
            result += zip(block.columns["label"].tolist(), stored, strict=True)
    return result


def drawn(root: object, **options) -> dict[int, str]:
    """Returns the split of each image by its key."""
    examples, splits, result = opened(root, **options), Splits(), {}
    for piece in examples.pieces:
        for block in examples.blocks(piece):
            assigned = splits.assign(block.keys, native=piece.split, natives=examples.native_splits)
            result |= zip(block.keys.tolist(), [SPLITS[i] for i in assigned], strict=True)
    return result


def test_small_images_of_one_size_are_pixels(folder, capsys):
    root = folder(many())
    examples = opened(root)
    assert examples.inputs[0].shape == (6, 5, 3) and examples.inputs[0].encoding is None
    assert examples.class_names == ("a", "b", "c") and examples.native_splits == {"train"}
    assert "images of 6 x 5 pixels are stored as pixels, 6 x 5 x 3" in capsys.readouterr().out
    expected = [("abc".index(name[0]), np.asarray(Image.open(root / name)).tobytes()) for name in many()]
    assert sorted(records(examples)) == sorted(expected)


def test_images_of_several_sizes_are_files(folder, capsys):
    root = folder({**many("ab", suffix=".jpg"), "a/large.png": (70, 80)})
    examples = opened(root)
    (image,) = examples.inputs
    assert (image.encoding, image.shape, image.value_range) == ("image", (224, 224, 3), (0.0, 255.0))
    assert "2 sizes from 6 x 5 to 70 x 80" in capsys.readouterr().out
    assert {data for _, data in records(examples)} == {path.read_bytes() for path in root.glob("*/*")}
    assert examples.most["image"] == max(path.stat().st_size for path in root.glob("*/*"))
    (block,) = examples.blocks(examples.pieces[0])
    assert sorted(block.measures["image.height"])[-2:] == [6, 70] and sum(block.measures["image.width"]) == 24 * 5 + 80


@pytest.mark.parametrize(
    ("size", "options", "shape", "encoding"),
    [
        ((6, 5), {}, (6, 5, 3), None),
        ((6, 5), {"encoding": "source"}, (6, 5, 3), "image"),
        ((6, 5), {"encoding": "source", "image_size": (8, 9)}, (8, 9, 3), "image"),
        ((6, 5), {"image_size": (8, 9)}, (8, 9, 3), None),
        ((128, 170), {}, (128, 170, 3), None),
        ((128, 171), {}, (128, 171, 3), "image"),
        ((128, 171), {"encoding": "raw"}, (128, 171, 3), None),
        ((128, 171), {"image_size": (200, 200)}, (200, 200, 3), None),
    ],
)
def test_storage_follows_size_and_options(folder, size, options, shape, encoding):
    (image,) = opened(folder(many("ab", 2, size=size)), **options).inputs
    assert (image.shape, image.encoding) == (shape, encoding)


def test_one_channel_only_if_all_are_gray(folder):
    root = folder(many("ab"), "L")
    assert opened(root).inputs[0].shape == (6, 5, 1)
    folder({"b/colour.png": (6, 5)})
    assert opened(root).inputs[0].shape == (6, 5, 3)


@pytest.mark.parametrize(
    ("train", "validation", "test"),
    [("train", "val", "test"), ("Training", "valid", "testing"), ("train", "dev", "Test")],
)
def test_folders_of_splits_are_kept(folder, train, validation, test):
    names = {"train": train, "validation": validation, "test": test}
    files = {**many(prefix=f"{train}/"), **many(count=3, prefix=f"{test}/"), **many("ab", 2, prefix=f"{validation}/")}
    examples = opened(folder(files))
    assert [piece.split for piece in examples.pieces] == [*names]
    counts = {split: np.bincount([label for label, _ in records(examples, split)], minlength=3) for split in names}
    assert {split: count.tolist() for split, count in counts.items()} == {
        "train": [12, 12, 12],
        "validation": [2, 2, 0],
        "test": [3, 3, 3],
    }


def test_what_is_left_out_is_printed(folder, capsys):
    strays = ("notes.txt", "bus/movie.gif", "bus/inner/1.png", "train/.hidden.png", ".git/1.png", "tram/readme")
    pictures = {f"{c}/{name}": (4, 4) for c in ("train", "bus") for name in ("1.png", "X.JPEG", "Y.PNG")}
    root = folder({**pictures, **dict.fromkeys(strays, b"")})
    (root / "empty").mkdir()
    os.mkfifo(root / "bus" / "pipe.png")
    examples = opened(root)
    lines = capsys.readouterr().out.splitlines()
    names = "bus/inner/1.png, bus/movie.gif, bus/pipe.png, notes.txt, tram/readme"
    assert lines[0].startswith(f"{root}: left out: {names} (only PNG")
    assert lines[1] == f"{root}: left out: empty, tram (no PNG or JPEG files in these folders)"
    assert examples.class_names == ("bus", "train") and len(records(examples)) == 6


def test_folder_beside_those_of_splits_is_left_out(folder, capsys):
    root = folder({**many("ab", prefix="train/"), "old/a/1.png": (6, 5), "test/a/1.png": (4, 4)})
    assert opened(root).native_splits == {"train", "test"}
    assert f"{root}: left out: old/a/1.png (" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{}, {"image_size": (4, 4)}, {"encoding": "source"}])
@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: b"GIF89a", lambda data: data[:-30]])
def test_broken_image_is_named(folder, options, damage):
    root = folder(many("ab"))
    path = root / "b" / "7.png"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=f"^{path}: [^\n]*$"):
        records(opened(root, **options))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"notes.txt": b""}, "no PNG or JPEG files in folders of it"),
        ({"1.png": (4, 4)}, "no PNG or JPEG files in folders of it"),
        ({"flowers/rose/1.png": (4, 4), "flowers/lily/1.png": (4, 4)}, "no PNG or JPEG files in folders of it"),
        (many("a"), "has one class, 'a'"),
        ({**many("ab", prefix="train/"), **many("c", prefix="test/")}, "class 'c' has no images for training"),
        ({**many("ab", prefix="train/"), "test/1.png": (4, 4)}, "source/test: no PNG or JPEG files"),
        ({**many("ab", prefix="train/"), **many("ab", prefix="val/"), **many("ab", prefix="valid/")}, "keep one"),
        ({**many("ab"), "a/x.png": (7, 7)}, r"images differ in size.*a/x.png is 7 x 7.*--image-size"),
    ],
)
def test_unusable_folder_is_refused(folder, files, message):
    root = folder(files)
    with pytest.raises(UserError, match=message) as error:
        opened(root, encoding="raw")
    assert str(root) in str(error.value)


def test_link_to_nowhere_is_refused(folder):
    root = folder(many("ab"))
    (root / "a" / "x.png").symlink_to("nowhere")
    with pytest.raises(UserError, match=r"a/x.png: no such file"):
        opened(root)


def test_image_that_changes_is_refused(folder):
    root = folder(many("ab"))
    examples = opened(root, encoding="source")
    path = root / "a" / "5.png"
    path.write_bytes(b"longer" + path.read_bytes())
    for _ in range(2):
        with pytest.raises(UserError, match=f"{path}: it has changed or gone"):
            records(examples)
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("encoding", ["raw", "source"])
def test_any_pieces_have_the_same_images(folder, monkeypatch, encoding):
    root = folder({**many(prefix="train/"), **many(count=3, prefix="val/")})
    expected = opened(root, encoding=encoding)
    monkeypatch.setattr(images, "_BLOCK_BYTES", 300)
    for shards in (1, 7, 99):
        examples = opened(root, encoding=encoding, shards=shards)
        assert len(examples.pieces) == min(shards, 36) + min(max(1, round(shards / 4)), 9)
        for split in ("train", "validation"):
            assert records(examples, split) == records(expected, split)


def test_orientation_that_is_not_applied_is_printed(folder, capsys):
    root = folder(many("ab", suffix=".jpg"))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (5, 6)).save(root / "a" / "phone.jpg", exif=exif)
    opened(root)
    assert f"orientation of 1 images is not applied, first of {root}/a/phone.jpg" in capsys.readouterr().out


def test_bucket_has_the_same_images(bucket, folder):
    root = folder({**many(), "a/large.png": (70, 80)})
    shutil.copytree(root, bucket / "data")
    remote = opened("gs://demo/data")
    assert records(remote) == records(opened(root))
    (bucket / "data" / "a" / "large.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"^gs://demo/data/a/large.png: it has changed or gone"):
        records(remote)


def test_class_that_is_no_text_is_refused(folder):
    root = folder(many("ab"))
    (root / "a").rename(root / os.fsdecode(b"caf\xe9"))
    with pytest.raises(UserError, match="is not UTF-8; rename that folder"):
        opened(root)


@given(data=st.data())
def test_added_images_move_no_other(tmp_path_factory, data):
    """An image stays in its split when others are added, whatever their number, names and sizes, and however it is stored."""
    root = tmp_path_factory.mktemp("images")
    before = drawn(write(root, many("ab", 20)))
    names = st.from_regex(r"[a-e]/[a-z]{1,3}[.]png", fullmatch=True)
    added = data.draw(st.dictionaries(names, st.sampled_from([(6, 5), (3, 3), (9, 200)]), min_size=1, max_size=5))
    after = drawn(write(root, added), shards=data.draw(st.none() | st.integers(1, 9)))
    assert len(after) == len(before) + len(added) and before.items() <= after.items()
    assert drawn(root, image_size=(4, 4)) == after


def test_one_more_of_a_thousand_moves_no_other(folder):
    before = drawn(folder(many("ab", 500, size=(2, 3))))
    assert len(before) == 1000 and {*before.values()} == {*SPLITS}
    assert before.items() <= drawn(folder({"a/new.png": (2, 3)})).items()


def test_keys_are_hashes_of_the_files(folder):
    root = folder(many("ab", 3))
    files = pa.array([path.read_bytes() for path in root.glob("*/*")], pa.large_binary())
    assert {*drawn(root)} == {*content_hashes(6, {"image": files}).tolist()}


def encode(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    """Returns an image as a file."""
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def decode(data: bytes, channels: int = 3, size: tuple[int, int] = (20, 30)) -> np.ndarray:
    return images.decode(data, "place", channels=channels, size=size)


def head(data: bytes) -> images._Heads:
    picture = images.Picture(origin="place", content=io.BytesIO(data), label=(0,))
    return images._read_heads([picture])


GRAY, BITS = PIXELS[..., 0], PIXELS[..., 0] > 127
FEW = Image.fromarray(PIXELS).quantize(16)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.fromarray(PIXELS), PIXELS),
        (Image.fromarray(np.concatenate([PIXELS, PIXELS[..., :1]], axis=2)), PIXELS),
        (FEW, np.asarray(FEW.convert("RGB"))),
        (Image.fromarray(GRAY), np.repeat(GRAY[..., np.newaxis], 3, axis=2)),
        (Image.fromarray(GRAY), GRAY[..., np.newaxis]),
        (Image.fromarray(GRAY.astype(np.uint16) * 256 + 255), GRAY[..., np.newaxis]),
        (Image.fromarray(BITS), BITS[..., np.newaxis] * 255),
    ],
    ids=["colour", "alpha", "palette", "gray as colour", "gray", "16 bits", "1 bit"],
)
def test_png_becomes_three_channels_or_one(image, expected):
    np.testing.assert_array_equal(decode(encode(image), expected.shape[2]), expected)


@pytest.mark.parametrize(("mode", "gray"), [("1", True), ("L", True), ("LA", True), ("P", False), ("RGBA", False)])
def test_head_tells_gray_from_colour(mode, gray):
    heads = head(encode(Image.new(mode, (30, 20))))
    assert (heads.sizes, heads.is_gray, heads.rotated) == ({(20, 30): "place"}, gray, [])


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_orientation_is_not_applied(kind):
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(Image.fromarray(PIXELS), kind, exif=exif)
    assert head(data).rotated == ["place"] and (20, 30) in head(data).sizes
    assert decode(data).shape == (20, 30, 3)


def test_central_part_of_the_proportions_is_resized():
    bars = np.zeros((20, 40, 3), np.uint8)
    bars[:, 10:30] = 255  # The central square.
    np.testing.assert_array_equal(decode(encode(Image.fromarray(bars)), size=(8, 8)), np.full((8, 8, 3), 255))
    assert decode(encode(Image.fromarray(PIXELS)), size=(64, 48)).shape == (64, 48, 3)
    for size in ((1, 1000), (1000, 1), (1, 1)):  # No proportions leave nothing.
        assert decode(encode(Image.new("RGB", (1, 1))), size=size).shape == (*size, 3)


def test_resizing_gives_the_same_bytes_everywhere():
    ramp = np.arange(600, dtype=np.uint32).reshape(20, 30) * 7 % 256
    resized = decode(encode(Image.fromarray(ramp.astype(np.uint8))), 1, size=(5, 7))
    assert zlib.crc32(resized.tobytes()) == 2689462674


def png(width: int, height: int) -> bytes:
    """Returns a file whose head promises so many pixels."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    ]
    packed = (struct.pack(">I", len(body)) + kind + body for kind, body in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(part + struct.pack(">I", zlib.crc32(part[4:])) for part in packed)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no PNG or JPEG"),
        (b"hello", "no PNG or JPEG"),
        (encode(Image.fromarray(PIXELS), "GIF"), "no PNG or JPEG"),
        (encode(Image.fromarray(PIXELS), "WEBP"), "no PNG or JPEG"),
        (png(30, 20), "broken image"),
        (png(20_000, 20_000), "too many|exceeds"),
        (png(10_000, 10_000), "10000 x 10000 pixels are too many"),
    ],
    ids=["empty", "text", "GIF", "WEBP", "no pixels", "bomb", "large"],
)
def test_no_image_is_refused_in_one_line(data, message, recwarn):
    with pytest.raises(UserError, match=f"^place: .*({message})[^\n]*$"):
        images.require_whole(data, "place")
    assert not recwarn


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_file_that_is_cut_is_refused(kind):
    data = encode(Image.fromarray(PIXELS), kind)
    for length in range(20, len(data) * 9 // 10, 97):
        with pytest.raises(UserError, match=r"^place: "):
            images.require_whole(data[:length], "place")


def test_flipped_byte_of_a_png_is_refused():
    data = encode(Image.fromarray(PIXELS))
    for i in range(50, len(data) - 20, 97):
        with pytest.raises(UserError, match=r"^place: broken image"):
            images.require_whole(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :], "place")

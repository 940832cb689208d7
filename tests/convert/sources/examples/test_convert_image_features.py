"""Images in TFRecord files whose labels are numbers, or several that apply."""

import io

import numpy as np
import pytest
from PIL import Image

from components.convert.convert import convert

TARGETS = {
    "regression": ("{regression: age}", (), np.float32, lambda i: i / 3),
    "several": ("{regression: {left: 'box[0]', age: age, count: n}}", (3,), np.float32, lambda i: [i / 7, i / 3, i]),
    "multi_label": ("{multi_label: {rose: 'tags[0]', lily: 'tags[1]'}}", (2,), np.int64, lambda i: [i % 2, i > 5]),
}


@pytest.mark.parametrize("what", TARGETS)
@pytest.mark.parametrize("stored", ["files", "packed", "pixels"])
def test_images_have_numbers_or_several_labels(tmp_path, write_records, options, examples, capsys, what, stored):
    label, shape, dtype, value = TARGETS[what]
    pixels = [np.full((4, 5, 3), i, np.uint8) for i in range(12)]
    files = [io.BytesIO() for _ in pixels]
    for file, image in zip(files, pixels, strict=True):
        Image.fromarray(image).save(file, "PNG")
    images = [image.tobytes() if stored == "pixels" else f.getvalue() for f, image in zip(files, pixels, strict=True)]
    rows = [
        {"image": images[i], "age": i / 3, "box": [i / 7, 1.0], "n": i, "tags": [i % 2, int(i > 5)]} for i in range(12)
    ]
    path = write_records(tmp_path / ("a.tfrecord.gz" if stored == "packed" else "a.tfrecord"), rows)
    text = f"{{name: dots, origin: made up, image: image, label: {label}{', shape: [4, 5, 3]' * (stored == 'pixels')}}}"
    manifest = convert(options(text, path))
    feature = manifest.feature("label")
    assert (feature.shape, feature.dtype) == (shape, np.dtype(dtype).name)
    (shard,) = manifest.splits["train"].shards
    for i, record in enumerate(examples((tmp_path / "out" / shard.file).read_bytes())):
        assert record["image"] == [pixels[i].tobytes()]
        assert np.array_equal(np.array(record["label"], dtype), np.array(value(i), dtype).reshape(-1))
    page = (tmp_path / "out" / "dataset.html").read_text()
    assert page.count("<figure>") == (2 if what == "multi_label" else 1)
    others = {"regression": "box, n, tags", "several": "tags", "multi_label": "age, box, n"}[what]
    assert f"left out of the records: {others}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("label", "values", "message"),
    [
        ("{regression: age}", {"age": float("nan")}, "age is nan, no finite number"),
        ("{regression: age}", {"age": b"old"}, "age holds 3 bytes, not one float"),
        ("{regression: 'box[2]'}", {"box": [1.0, 2.0]}, "box holds 2 float values, none at [2]"),
        ("{multi_label: {a: 'tags[0]', b: 'tags[1]'}}", {"tags": [1, 2]}, "tags is 2, neither 0 nor 1"),
    ],
)
def test_a_label_that_is_none_is_told_with_its_record(tmp_path, write_records, rejected, label, values, message):
    path = write_records(tmp_path / "a.tfrecord", [{"image": b"", **values}])
    text = f"{{name: dots, origin: made up, image: image, label: {label}}}"
    assert f"{path}: record at byte 0: {message}" in rejected(text, path)

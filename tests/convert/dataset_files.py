"""Files of datasets, written for tests and read by other means than ours."""

import gzip
import io
import pathlib
import struct

import google_crc32c
import numpy as np
from PIL import Image

from common.manifest import Manifest
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.output import PLAN


def convert_to(output, **options):
    """Converts into a directory; an option may be a path."""
    paths = {key: str(path) for key, path in options.items() if isinstance(path, pathlib.Path)}
    return convert(Options(**{**options, **paths}, output=str(output)))


def write_files(root, files):
    """Writes files below a folder, which is made; returns the folder."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def encode_image(image, kind="PNG", **options):
    """Returns pixels, or an image of Pillow, as an image file."""
    stream = io.BytesIO()
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    image.save(stream, kind, **options)
    return stream.getvalue()


def idx_bytes(array):
    """Returns the content of an IDX file."""
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def make_idx(
    directory,
    *,
    size=(5, 4),
    classes=10,
    packed=True,
    **examples,
):
    """Writes so many random images of `train` and `test` as IDX files.

    Returns:
      Images and labels by split.
    """
    arrays = {}
    for split, count in examples.items():
        images = np.random.default_rng(count).integers(0, 256, (count, *size), np.uint8)
        labels = (np.arange(count) % classes).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            name, data = f"{split.replace('test', 't10k')}-{kind}-ubyte", idx_bytes(array)
            file = {f"{name}.gz": gzip.compress(data)} if packed else {name: data}
            write_files(directory, file)
        arrays[split] = (images, labels)
    return arrays


def read_folder(directory):
    """Returns all files below a directory, but not the plan: another source has another one."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != PLAN
    }


def _masked(data):
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def parse_examples(data):
    """Returns the records of a TFRecord file as the official protobuf library parses them.

    Checksums are compared.
    """
    from tensorflow_datasets.proto import tf_example_pb2  # Slow to import.

    file, records = io.BytesIO(data), []
    while length := file.read(8):
        sums = file.read(4)
        payload = file.read(int.from_bytes(length, "little"))
        assert sums + file.read(4) == _masked(length) + _masked(payload)
        features = tf_example_pb2.Example.FromString(payload).features.feature
        records.append(
            {name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()}
        )
    return records


def read_split(directory, split="train"):
    """Returns the records of a split of a dataset, in order; a single value without its list."""
    records = []
    for shard in Manifest.load(directory).splits[split].shards:
        records += parse_examples((directory / shard.file).read_bytes())
    return [
        {name: values[0] if len(values) == 1 else values for name, values in record.items()}
        for record in records
    ]

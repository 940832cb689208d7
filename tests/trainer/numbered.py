"""Small datasets of images of noise, or of image files, whose labels say which example it is."""

import io
import pathlib

import numpy as np
from PIL import Image

from tests.convert.dataset_files import convert_to, make_idx
from trainer.data.placement import Choice, provide_files
from trainer.data.reader import open_reader


def dataset(directory, examples, *, shards=3, size=(2, 3), classes=None):
    """Converts images to a training and a test split; returns the manifest.

    Args:
      directory: New; what is converted is beside it.
      examples: How many.
      shards: How many.
      size: Height and width that a model gets.
      classes: Example i has label i modulo that; without it label i.
    """
    source, classes = directory.with_name("source"), classes or examples
    make_idx(source, size=size, classes=classes, train=examples, test=examples)
    options = {"dataset": "idx", "shards": shards, "validation_fraction": 0.0}
    return convert_to(directory, source=source, **options)


def reader_of(manifest, directory, mode, batch, **options):
    """Opens the training split of a dataset here."""
    options = {"seed": 5, "prepare": dict, **options}
    place = Choice(str(directory), mode, "", None)
    return open_reader(place, manifest, global_batch=batch, **options)


def provided(manifest, directory, cache, *alive):
    """Returns where training reads the files of a dataset, copied unless `cache` is None."""
    choice = Choice(str(directory), "mapped", "", cache and str(cache))
    return pathlib.Path(provide_files(choice, manifest, *alive).data_dir)


def network(manifest):
    """A model that costs next to nothing: `--model numbered:network`."""
    import keras

    image = manifest.feature("image")
    inputs = keras.Input(image.shape, dtype=image.dtype, name="image")
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 255)(inputs))
    return keras.Model({"image": inputs}, keras.layers.Dense(len(manifest.class_names))(x))


def picture(height, width, kind="PNG", seed=0):
    """A smooth image file in colour."""
    corners = np.random.default_rng(seed).integers(0, 256, (3, 3, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(corners).resize((width, height), Image.Resampling.BICUBIC).save(
        file, kind, quality=95
    )
    return file.getvalue()


def damage(path, position):
    """Flips a bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)

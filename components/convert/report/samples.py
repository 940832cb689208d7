"""A few training examples to look at: images by class, or rows of a table.

samples = take(source, rows, features)
samples.strips[0].uri     # data:image/png;base64,...
"""

from __future__ import annotations

import base64
import dataclasses
import io
import math
from typing import TYPE_CHECKING

import numpy as np

from components.convert.report.accumulators import cut
from components.convert.sources.base import Source
from components.convert.writing.byte_strings import Strings
from components.convert.writing.splits import Rows
from components.convert.writing.tfrecord import Column
from trainer.base.manifest import Feature

if TYPE_CHECKING:
    from PIL import Image

_ROWS, _LONGEST = 8, 40  # of a table, and characters of a value
_MOST_PIXEL_BYTES, _MOST_IMAGES, _MOST_OF_A_CLASS = 160_000, 100, 10
_SIDE, _GAP = 64, 1  # pixels of a larger image, once shrunk, and between images


@dataclasses.dataclass(frozen=True, kw_only=True)
class Strip:
    """Images of a class side by side, as one PNG in a data URI; `width` and `height` in pixels."""

    class_name: str
    uri: str
    width: int
    height: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samples:
    """Training examples: of images `strips`, of a table `rows`, each a text by column or None where it is missing."""

    strips: tuple[Strip, ...] = ()
    rows: tuple[dict[str, str | None], ...] = ()


def take(source: Source, rows: Rows, features: tuple[Feature, ...]) -> Samples:
    """The first training examples, of images the first of each class.

    Args:
      source: The examples.
      rows: Of its split `train`.
      features: The manifest's.
    """
    image = next((feature for feature in features if feature.shape), None)
    columns = source.splits["train"]
    if image is None:
        return Samples(rows=_table(source, rows[:_ROWS], features))
    side = min(_SIDE, image.shape[0]), min(_SIDE, image.shape[1])
    most = min(_MOST_IMAGES, max(10, _MOST_PIXEL_BYTES // (math.prod(side) * image.shape[2])))
    names = source.class_names[:most]
    each = min(_MOST_OF_A_CLASS, most // len(names))
    block = next(rows.blocks())
    labels = columns["label"][block]
    chosen = ((name, block[np.flatnonzero(labels == label)[:each]]) for label, name in enumerate(names))
    return Samples(
        strips=tuple(_strip(name, columns[image.name], few, image, side) for name, few in chosen if len(few))
    )


def _table(source: Source, rows: np.ndarray, features: tuple[Feature, ...]) -> tuple[dict[str, str | None], ...]:
    columns = source.splits["train"]
    shown = {}
    for feature in features:
        values = columns[feature.name][rows].tolist()
        if feature.name == "label":
            values = [source.class_names[value] for value in values]
        missing = getattr(source, "missing", {}).get("train", {}).get(feature.name)
        absent = [False] * len(values) if missing is None else missing[rows]
        shown[feature.name] = [None if no else _text(value) for value, no in zip(values, absent, strict=True)]
    return tuple({name: texts[i] for name, texts in shown.items()} for i in range(len(rows)))


def _text(value: bytes | float | int | str) -> str:
    if isinstance(value, float):
        return f"{value:.7g}"
    return cut(value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value), _LONGEST)


def _strip(name: str, column: Column, rows: np.ndarray, feature: Feature, side: tuple[int, int]) -> Strip:
    from PIL import Image

    values = column[rows]
    pictures = _decoded(values, feature, side) if isinstance(values, Strings) else _scaled(values, feature, side)
    pitch = side[1] + _GAP
    strip = Image.new(pictures[0].mode, (pitch * len(pictures) - _GAP, side[0]), (128,) * len(pictures[0].getbands()))
    for i, picture in enumerate(pictures):
        strip.paste(picture, (i * pitch, 0))
    file = io.BytesIO()
    strip.save(file, "PNG", optimize=True)
    uri = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return Strip(class_name=name, uri=uri, width=strip.width, height=strip.height)


def _decoded(values: Strings, feature: Feature, side: tuple[int, int]) -> list[Image.Image]:
    """Image files, cut and shrunk."""
    from PIL import Image

    from components.convert.images import headers

    channels = feature.shape[-1]
    pixels = [headers.decode(v, "", channels=channels, size=side) for v in values.tolist()]
    return [Image.fromarray(one[:, :, 0] if channels == 1 else one) for one in pixels]


def _scaled(values: np.ndarray, feature: Feature, side: tuple[int, int]) -> list[Image.Image]:
    """Pixels, spread from the range of their values to 8 bits, and shrunk."""
    from PIL import Image, ImageOps

    low, high = feature.value_range
    if (low, high) != (0, 255):
        values = ((values - low) * (255 / (high - low))).astype(np.uint8)
    images = (Image.fromarray(one if one.shape[-1] == 3 else one[:, :, 0]) for one in values)
    return [one if one.size == side[::-1] else ImageOps.fit(one, side[::-1]) for one in images]

"""A few training examples to look at: images by class, or rows of a table.

strips(source, rows, image)[0]["uri"]  # data:image/png;base64,...
table(source, rows)[0]       # {"fare": "12.5", "company": None}
"""

import base64
import io
import itertools
import math
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from components.convert.images import headers
from components.convert.report.accumulators import cut
from components.convert.source import Source
from components.convert.writing.byte_strings import Strings
from components.convert.writing.label_feature import LABEL
from components.convert.writing.splits import Rows
from trainer.base.manifest import MULTI_LABEL, REGRESSION, Feature

_ROWS, _LONGEST = 8, 40  # of a table, and characters of a value
_MOST_PIXEL_BYTES, _MOST_IMAGES, _MOST_OF_A_CLASS = 160_000, 100, 10
_SIDE, _GAP = 64, 1  # pixels of a larger image, once shrunk, and between images


def strips(source: Source, rows: Rows, image: Feature) -> list[dict[str, Any]]:
    """The first training images, of each class or label if there are any, `rows` being those of the split `train`."""
    side = min(_SIDE, image.shape[0]), min(_SIDE, image.shape[1])
    most = min(_MOST_IMAGES, max(10, _MOST_PIXEL_BYTES // (math.prod(side) * image.shape[2])))
    columns, block = source.splits["train"], next(rows.blocks())
    labels, found = columns[LABEL][block], []
    if source.task == REGRESSION:
        named = {"; ".join(_said(source, labels[:_MOST_OF_A_CLASS])): np.ones(len(block), bool)}
    elif source.task == MULTI_LABEL:
        named = {name: labels[:, i] == 1 for i, name in enumerate(source.targets[:most])}
    else:
        named = {name: labels == i for i, name in enumerate(source.class_names[:most])}
    each = min(_MOST_OF_A_CLASS, most // len(named))
    for name, of_it in named.items():
        chosen = block[np.flatnonzero(of_it)[:each]]
        if len(chosen):
            found.append(_strip(name, _pictures(columns[image.name][chosen], image, side)))
    return found


def table(source: Source, rows: Rows) -> list[dict[str, str | None]]:
    """The first training examples, each a text by column, or None where it is missing."""
    first, shown = rows[:_ROWS], {}
    for feature in source.features:
        values = source.splits["train"][feature.name][first]
        values = _said(source, values) if feature.name == LABEL else values.tolist()
        missing = source.missing.get("train", {}).get(feature.name)
        absent = [False] * len(values) if missing is None else missing[first]
        shown[feature.name] = [None if no else _text(value) for value, no in zip(values, absent, strict=True)]
    return [{name: texts[i] for name, texts in shown.items()} for i in range(len(first))]


def _said(source: Source, labels: np.ndarray) -> list[str]:
    """Labels, [N] or [N, k], in words: the class, the numbers, or the names of those that apply."""
    if source.task == REGRESSION:
        return [", ".join(map(_text, row)) for row in labels.reshape(len(labels), -1).tolist()]
    if source.task == MULTI_LABEL:
        return [", ".join(itertools.compress(source.targets, row)) or "none" for row in labels.tolist()]
    return [source.class_names[label] for label in labels.tolist()]


def _text(value: bytes | float | int | str) -> str:
    if isinstance(value, float):
        return f"{value:.7g}"
    return cut(value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value), _LONGEST)


def _pictures(values: Strings | np.ndarray, feature: Feature, side: tuple[int, int]) -> list[Image.Image]:
    """Images, cut and shrunk; pixels are spread from the range of their values to 8 bits."""
    low, high = feature.value_range
    if isinstance(values, Strings):
        channels = feature.shape[-1]
        values = [headers.decode(file, "", channels=channels, size=side) for file in values.tolist()]
    elif (low, high) != (0, 255):
        values = ((values - low) * (255 / (high - low))).astype(np.uint8)
    images = (Image.fromarray(one if one.shape[-1] == 3 else one[:, :, 0]) for one in values)
    return [one if one.size == side[::-1] else ImageOps.fit(one, side[::-1]) for one in images]


def _strip(name: str, pictures: list[Image.Image]) -> dict[str, Any]:
    """Images side by side as one PNG in a data URI, and its size in pixels."""
    width, height = pictures[0].size
    pitch, gray = width + _GAP, (128,) * len(pictures[0].getbands())
    strip = Image.new(pictures[0].mode, (pitch * len(pictures) - _GAP, height), gray)
    for i, picture in enumerate(pictures):
        strip.paste(picture, (i * pitch, 0))
    file = io.BytesIO()
    strip.save(file, "PNG", optimize=True)
    uri = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return {"name": name, "uri": uri, "width": strip.width, "height": strip.height}

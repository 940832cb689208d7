"""A few training examples to look at: images by class, or rows of a table.

samples = Samples(source)
samples.add(columns, missing)                    # the first ones are kept
samples.absorb(other.state())                    # JSON; of examples that come later
samples.strips(manifest.class_names)[0]["uri"]   # data:image/png;base64,...
samples.table()[0]                               # {"fare": "12.5", "company": None}
"""

import base64
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from common.manifest import MULTI_LABEL, REGRESSION, Feature
from components.convert.images import headers
from components.convert.pieces import Source
from components.convert.report.accumulators import cut
from components.convert.writing.byte_strings import Strings
from components.convert.writing.label_feature import LABEL

_ROWS, _LONGEST = 8, 40  # of a table, and characters of a value
_MOST_PIXEL_BYTES, _MOST_IMAGES, _MOST_OF_A_CLASS = 160_000, 100, 10
_SIDE, _GAP = 64, 1  # pixels of a larger image, once shrunk, and between images


class Samples:
    """The first rows of a table, as texts by column; or the first images of each class or label, as pixels.

    Images of a regression are the first of all, each with what is said of it.

    Attributes:
      left: How many are still taken in, by class or label.
    """

    def __init__(self, source: Source):
        self._source, self._kept, self._names = source, [], ()
        self._image = next((feature for feature in source.inputs if feature.dtype == "uint8"), None)
        self.left = {"": _MOST_OF_A_CLASS if self._image else _ROWS}
        if self._image:
            self._side = tuple(min(_SIDE, length) for length in self._image.shape[:2])
            if source.task != REGRESSION:
                pixel_bytes = math.prod(self._side) * self._image.shape[2]
                most = min(_MOST_IMAGES, max(10, _MOST_PIXEL_BYTES // pixel_bytes))
                self._names = (source.class_names or source.targets)[:most]
                self.left = dict.fromkeys(self._names, min(_MOST_OF_A_CLASS, most // len(self._names)))

    def state(self) -> list[Any]:
        """All of it, as JSON."""
        return self._kept

    def absorb(self, state: Sequence[Any]) -> None:
        """Takes in what another one knows, of examples that come later."""
        for sample in state:
            of = sample[0] if self._names else ""
            if self.left[of]:
                self.left[of] -= 1
                self._kept.append(sample)

    def add(self, columns: Mapping[str, Any], missing: Mapping[str, np.ndarray]) -> None:
        """Takes in training examples."""
        labels, first = columns[LABEL], np.arange(min(len(columns[LABEL]), self.left.get("", 0)))
        if not self._image:
            self.absorb(self._rows(columns, missing, first))
        elif not self._names:
            self._keep(self._said(labels[first]), first, columns)
        for i, name in enumerate(self._names):
            if left := self.left[name]:
                of_it = labels[:, i] == 1 if self._source.task == MULTI_LABEL else labels == i
                rows = np.flatnonzero(of_it)[:left]
                self._keep([name] * len(rows), rows, columns)

    def strips(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """The images by class or label, in the order of their names, or all of them together."""
        found, mode = {name: [] for name in names}, "RGB" if self._image.shape[-1] == 3 else "L"
        said = None if self._names else "; ".join(name for name, _ in self._kept)
        for name, pixels in self._kept:
            picture = Image.frombytes(mode, self._side[::-1], base64.b64decode(pixels))
            found.setdefault(said or name, []).append(picture)
        return [_strip(name, pictures) for name, pictures in found.items() if pictures]

    def table(self) -> list[dict[str, str | None]]:
        """The rows, each a text by column, or None where it is missing."""
        return self._kept

    def _keep(self, names: Sequence[str], rows: np.ndarray, columns: Mapping[str, Any]) -> None:
        """Takes in images, which have such names."""
        if len(rows):
            pictures = _pictures(columns[self._image.name][rows], self._image, self._side)
            pixels = [base64.b64encode(picture.tobytes()).decode() for picture in pictures]
            self.absorb(list(zip(names, pixels, strict=True)))

    def _rows(self, columns: Mapping[str, Any], missing: Mapping[str, np.ndarray], rows: np.ndarray) -> list[Any]:
        """Examples, each a text by column, or None where it is missing."""
        shown = {}
        for feature in self._source.features if len(rows) else ():
            values = columns[feature.name][rows]
            values = self._said(values) if feature.name == LABEL else values.tolist()
            absent = missing[feature.name][rows] if feature.name in missing else np.zeros(len(rows), bool)
            shown[feature.name] = [None if no else _text(value) for value, no in zip(values, absent, strict=True)]
        return [{name: texts[i] for name, texts in shown.items()} for i in range(len(rows))]

    def _said(self, labels: np.ndarray) -> list[str]:
        """Labels, [N] or [N, k], in words: the class, the numbers, or the names of those that apply."""
        if self._source.task == REGRESSION:
            return [", ".join(map(_text, row)) for row in labels.reshape(len(labels), -1).tolist()]
        if self._source.task == MULTI_LABEL:
            return [", ".join(itertools.compress(self._source.targets, row)) or "none" for row in labels.tolist()]
        return [self._source.class_names[label] for label in labels.tolist()]


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


def _strip(name: str, pictures: Sequence[Image.Image]) -> dict[str, Any]:
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

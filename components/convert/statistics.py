"""Statistics of a split: exact figures, and a sample of its records for the page.

    statistics = Statistics(examples, "train")
    statistics.add(block, hashes)                                # Records of this split.
    statistics.absorb(other.state())                             # Those of the next piece, as JSON.
    statistics.numbers["fare"].summary().mean

Means and deviations are combined as in Chan, Golub and LeVeque, "Updating formulae and a
pairwise algorithm for computing sample variances" (1979). The same pieces in the same order give
the same figures.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION, Feature, Summary
from components.convert.records import Column
from components.convert.source import LABEL, Block, Examples
from components.convert.sources.images import decode

# A sample has at most so many records, and values, but always at least `_MIN_RECORDS`.
_SAMPLE_RECORDS, _SAMPLE_VALUES, _MIN_RECORDS = 1_000, 200_000, 20
_MAX_CHARACTERS = 80  # A longer text is cut off in a sample.
_PICTURES, _PICTURE_SIDE = 100, 64  # Images of a sample, and pixels of their longer side.


@dataclasses.dataclass
class Numbers:
    """Exact figures of the numbers of one column in one split.

    Attributes:
      missing: Number of records without a value in the source.
      count: Number of values. The other figures are those of these values.
      mean: Mean; 0 if there are no values.
      squares: Sum of the squared deviations from the mean.
      min: Smallest value; infinity if there are none.
      max: Largest value; minus infinity if there are none.
    """

    missing: int = 0
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    min: float = math.inf
    max: float = -math.inf

    def add(self, column: Column, is_missing: np.ndarray | None) -> None:
        """Adds the values of N records.

        Args:
          column: The values. Of texts only the missing ones are counted.
          is_missing: Where the source has no value, bool [N]; None if it has all.
        """
        if is_missing is not None:
            self.missing += int(is_missing.sum())
        if not isinstance(column, np.ndarray):
            return
        values = column if is_missing is None else column[~is_missing]
        if not len(values):
            return
        # Adding 0 turns -0.0 into 0.0.
        ends = {"min": values.min().item() + 0, "max": values.max().item() + 0}
        values = values.astype(np.float64)
        # Relative to the first value, the mean of equal values is exact, and their deviation is 0.
        mean = values[0] + (values - values[0]).mean()
        squares = ((values - mean) ** 2).sum()
        self.absorb(Numbers(count=len(values), mean=float(mean), squares=float(squares), **ends))

    def absorb(self, other: Numbers) -> None:
        """Adds the figures of another instance, whose records come after these."""
        self.missing += other.missing
        if other.count:
            total = self.count + other.count
            difference = other.mean - self.mean
            self.squares += other.squares + difference**2 * (self.count * other.count / total)
            self.mean += difference * (other.count / total)
            self.count = total
            self.min = min(self.min, other.min)
            self.max = max(self.max, other.max)

    def summary(self) -> Summary:
        """Returns the figures as in the manifest; without values all but `missing` are None."""
        if not self.count:
            return Summary(missing=self.missing)
        std = math.sqrt(self.squares / self.count)
        return Summary(missing=self.missing, mean=self.mean, std=std, min=self.min, max=self.max)


class Sample:
    """Random sample of records: those with the smallest content hashes.

    Neither the order of the records nor their division into pieces changes the sample.

    Attributes:
      size: Largest number of records.
      records: Hash of each record, in ascending order, and its values by name.
    """

    def __init__(self, size: int):
        self.size = size
        self.records: list[tuple[int, dict[str, Any]]] = []

    def add(self, hashes: np.ndarray, values: Callable[[np.ndarray], Mapping[str, Any]]) -> None:
        """Adds records, and keeps those with the smallest hashes.

        Args:
          hashes: Content hashes of N records, uint64 [N].
          values: Returns the values of those records that may belong to the sample, by name, given
            their positions, int64 [M].
        """
        rows = np.argsort(hashes, kind="stable")[: self.size]
        if len(self.records) == self.size:
            rows = rows[hashes[rows] < self.records[-1][0]]
        columns = values(rows)
        records = (
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        )
        self.absorb(zip(hashes[rows].tolist(), records, strict=True))

    def absorb(self, records: Iterable[tuple[int, dict[str, Any]]]) -> None:
        """Adds records with their hashes, as in `records`, and keeps those with the smallest."""
        self.records = sorted([*self.records, *records], key=operator.itemgetter(0))[: self.size]


class Statistics:
    """Figures and samples of one split, of all pieces or of one piece.

    Args:
      examples: The opened source.
      split: Name of the split. Only that of training has pictures.
      of_piece: Whether they are of one piece only, whose samples are then smaller.

    Attributes:
      classes: Number of examples of each class, or of each label; int64 [classes].
      numbers: Figures of the columns by name, and with a regression also by `label.TARGET`.
      sample: Sample of the records: numbers, the first 80 characters of texts, and None where the
        source has no value. Images of one shape are represented by their mean value; image files
        are left out.
      pictures: Sample of images, with `label` and `picture`. A picture is what was added, pixels or
        a file; one from `absorb` is a small copy, as `_picture` makes it.
    """

    def __init__(self, examples: Examples, split: str, *, of_piece: bool = False):
        self._examples = examples
        self._split = split
        records = max(_MIN_RECORDS, min(_SAMPLE_RECORDS, _SAMPLE_VALUES // len(examples.features)))
        # Hashes are spread evenly, so one piece of many has few of the smallest. Twice its share
        # and some more are kept, so that the dataset's sample hardly ever lacks a record.
        share = 2 / len(examples.pieces) if of_piece else 1
        self.sample, self.pictures = (
            Sample(min(size, int(share * size) + _MIN_RECORDS)) for size in (records, _PICTURES)
        )
        self._image = next(
            (feature for feature in examples.inputs if feature.dtype == "uint8"), None
        )
        num_classes = (
            0 if examples.task == REGRESSION else len(examples.class_names or examples.targets)
        )
        self.classes = np.zeros(num_classes, np.int64)
        self.numbers: dict[str, Numbers] = collections.defaultdict(Numbers)

    def add(self, block: Block, hashes: np.ndarray) -> None:
        """Adds N records.

        Args:
          block: The records.
          hashes: Content hashes, uint64 [N].
        """
        labels, task, image = block.columns[LABEL], self._examples.task, self._image
        values = {**block.columns, **block.measures}
        scalars = {
            name: column
            for name, column in values.items()
            if name != LABEL and (not isinstance(column, np.ndarray) or column.ndim == 1)
        }
        if task == CLASSIFICATION:
            self.classes += np.bincount(labels, minlength=len(self.classes))
        elif task == MULTI_LABEL:
            self.classes += labels.sum(axis=0)
        else:
            targets = labels.reshape(len(labels), -1).T
            for name, target in zip(self._examples.targets, targets, strict=True):
                scalars[f"{LABEL}.{name}"] = target
        for name, column in scalars.items():
            self.numbers[name].add(column, block.missing.get(name))
        if image and self._split == "train":
            images: Any = block.columns[image.name]
            self.pictures.add(
                hashes,
                lambda rows: {
                    LABEL: labels[rows].tolist(),
                    "picture": images.take(rows).to_pylist() if image.encoding else [*images[rows]],
                },
            )
        if image and image.encoding:
            del values[image.name]
        self.sample.add(
            hashes,
            lambda rows: {
                name: _values(column, block.missing.get(name), rows)
                for name, column in values.items()
            },
        )

    def state(self) -> dict[str, Any]:
        """Returns the figures and samples as values of JSON, for `absorb` of another instance.

        Pictures are small copies in it.
        """
        return {
            "classes": self.classes.tolist(),
            "numbers": {name: vars(numbers) for name, numbers in self.numbers.items()},
            "sample": self.sample.records,
            "pictures": [
                (hash_, {**record, "picture": _picture(record["picture"], self._image)})
                for hash_, record in self.pictures.records
                if self._image
            ],
        }

    def absorb(self, state: Mapping[str, Any]) -> None:
        """Adds the state of another instance, whose records come after these."""
        self.classes += np.array(state["classes"], np.int64)
        for name, numbers in state["numbers"].items():
            self.numbers[name].absorb(Numbers(**numbers))
        self.sample.absorb(state["sample"])
        self.pictures.absorb(state["pictures"])


def _picture(image: np.ndarray | bytes, feature: Feature) -> tuple[Sequence[int], str]:
    """Returns a small copy of an image, as its shape and its pixels, uint8, in base64.

    Args:
      image: Pixels, uint8 [height, width, channels], or an image file.
      feature: Feature of the image. Its range of values is stretched to 0 to 255.
    """
    height, width, channels = feature.shape
    step = math.ceil(max(height, width) / _PICTURE_SIDE)
    if isinstance(image, bytes):
        size = math.ceil(height / step), math.ceil(width / step)
        pixels = decode(image, "", channels=channels, size=size)
    else:
        pixels = image[::step, ::step]
    low, high = feature.value_range or (0, 255)
    stretched = ((pixels - low) * (255 / (high - low))).astype(np.uint8)
    return stretched.shape, base64.b64encode(stretched.tobytes()).decode()


def _values(column: Column, is_missing: np.ndarray | None, rows: np.ndarray) -> list[Any]:
    """Returns the values of sampled records as JSON.

    An image becomes the mean of its pixels; of a text the first 80 characters are taken.

    Args:
      column: Values of N records.
      is_missing: Where the source has no value, bool [N]; None if it has all.
      rows: Positions of the M sampled records, int64 [M].
    """
    if isinstance(column, np.ndarray):
        values = column[rows]
        values = (values.mean(axis=(1, 2, 3)) if values.ndim == 4 else values).tolist()
    else:
        texts = column.take(rows).to_pylist()
        values = [text.decode(errors="backslashreplace")[:_MAX_CHARACTERS] for text in texts]
    if is_missing is not None:
        for row in np.flatnonzero(is_missing[rows]):
            values[row] = None
    return values

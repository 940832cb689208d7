"""Statistics of a dataset: exact figures of each split, and a sample of its records for the page.

    statistics = Statistics(examples)
    statistics.add("train", columns, missing, measures, hashes)  # Records of a block, of one split.
    statistics.absorb(other.state())                             # Those of the next piece, as JSON.
    statistics.describe()["train"].summaries["fare"].mean

Means and deviations are combined as in Chan, Golub and LeVeque, "Updating formulae and a
pairwise algorithm for computing sample variances" (1979). The same pieces in the same order give
the same figures.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from common.errors import UserError
from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION, Feature, Split, Summary
from components.convert.records import Column
from components.convert.source import LABEL, Examples
from components.convert.sources.images import decode
from components.convert.splits import SPLITS

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

    def add(self, values: np.ndarray) -> None:
        """Adds values, [N]; N may be 0."""
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
      columns: Values of the records in ascending order of their hashes, by name of the column.
    """

    def __init__(self, size: int):
        self.size = size
        self.columns: dict[str, list[Any]] = {}
        self._hashes: list[int] = []

    def candidates(self, hashes: np.ndarray) -> np.ndarray:
        """Returns the positions of those new records that may belong to the sample, int64 [M].

        These are at most `size`, in ascending order of their hashes.

        Args:
          hashes: Content hashes of the new records, uint64 [N].
        """
        rows = np.argsort(hashes, kind="stable")[: self.size]
        is_full = len(self._hashes) == self.size
        return rows[hashes[rows] < np.uint64(self._hashes[-1])] if is_full else rows

    def add(self, hashes: Sequence[int], columns: Mapping[str, Sequence[Any]]) -> None:
        """Adds records, and keeps those with the smallest hashes.

        Args:
          hashes: Content hashes of N records.
          columns: N values of each column, by name; the same columns in each call.
        """
        if not len(hashes):
            return
        known = [*self._hashes, *hashes]
        order = sorted(range(len(known)), key=known.__getitem__)[: self.size]
        self._hashes = [known[row] for row in order]
        for name, values in columns.items():
            merged = [*self.columns.get(name, ()), *values]
            self.columns[name] = [merged[row] for row in order]

    def state(self) -> Any:
        """Returns the arguments with which `add` of another sample takes these records."""
        return self._hashes, self.columns


class Statistics:
    """Figures and samples of the splits, of all pieces or of one piece.

    Args:
      examples: The opened source.
      of_piece: Whether they are of one piece only, whose samples are then smaller.

    Attributes:
      samples: Sample of each split, by name. Its columns have numbers, the first 80 characters of
        texts, and None where the source has no value. Images of one shape are represented by their
        mean value; image files are left out.
      pictures: Sample of training images, with the columns `label` and `picture`. A picture is what
        was added, pixels or a file; one from `absorb` is a small copy, as `_picture` makes it.
    """

    def __init__(self, examples: Examples, *, of_piece: bool = False):
        self._examples = examples
        records = max(_MIN_RECORDS, min(_SAMPLE_RECORDS, _SAMPLE_VALUES // len(examples.features)))
        # Hashes are spread evenly, so one piece of many has few of the smallest. Twice its share
        # and some more are kept, so that the dataset's sample hardly ever lacks a record.
        share = 2 / len(examples.pieces) if of_piece else 1
        records, pictures = (
            min(size, int(share * size) + _MIN_RECORDS) for size in (records, _PICTURES)
        )
        self._image = next(
            (feature for feature in examples.inputs if feature.dtype == "uint8"), None
        )
        self.samples = {split: Sample(records) for split in SPLITS}
        self.pictures = Sample(pictures)
        self._counts = dict.fromkeys(SPLITS, 0)
        num_classes = (
            0 if examples.task == REGRESSION else len(examples.class_names or examples.targets)
        )
        self._classes = {split: np.zeros(num_classes, np.int64) for split in SPLITS}
        self._numbers: dict[str, dict[str, Numbers]] = {
            split: collections.defaultdict(Numbers) for split in SPLITS
        }

    def add(
        self,
        split: str,
        columns: Mapping[str, Column],
        missing: Mapping[str, np.ndarray],
        measures: Mapping[str, np.ndarray],
        hashes: np.ndarray,
    ) -> None:
        """Adds N records of a split.

        Args:
          split: Name of the split.
          columns: N values of each feature, by name, label included, in the form that
            `source.Block` has them.
          missing: By name of a column with a default, where the source has no value: bool [N].
          measures: N further numbers of each record, for the statistics only, by name.
          hashes: Content hashes, uint64 [N].
        """
        labels = columns[LABEL]
        self._counts[split] += len(labels)
        if self._examples.task == CLASSIFICATION:
            self._classes[split] += np.bincount(labels, minlength=len(self._examples.class_names))
        elif self._examples.task == MULTI_LABEL:
            self._classes[split] += labels.sum(axis=0)
        values = {**columns, **measures}
        for name, column in self._scalars(values).items():
            numbers, is_missing = self._numbers[split][name], missing.get(name)
            if is_missing is not None:
                numbers.missing += int(is_missing.sum())
            if isinstance(column, np.ndarray):
                numbers.add(column if is_missing is None else column[~is_missing])
        image = self._image
        if split == "train" and image:
            rows = self.pictures.candidates(hashes)
            images: Any = columns[image.name]
            pictures = images.take(rows).to_pylist() if image.encoding else [*images[rows]]
            self.pictures.add(
                hashes[rows].tolist(), {LABEL: labels[rows].tolist(), "picture": pictures}
            )
        if image and image.encoding:
            del values[image.name]
        rows = self.samples[split].candidates(hashes)
        sampled = {
            name: _values(column, missing.get(name), rows) for name, column in values.items()
        }
        self.samples[split].add(hashes[rows].tolist(), sampled)

    def state(self) -> Any:
        """Returns the figures and samples as JSON, for `absorb` of another instance."""
        splits = {
            split: {
                "count": self._counts[split],
                "classes": self._classes[split].tolist(),
                "numbers": {name: vars(numbers) for name, numbers in self._numbers[split].items()},
                "sample": self.samples[split].state(),
            }
            for split in SPLITS
        }
        hashes, pictures = self.pictures.state()
        if pictures and self._image:
            pictures = {
                **pictures,
                "picture": [_picture(image, self._image) for image in pictures["picture"]],
            }
        return {"splits": splits, "pictures": (hashes, pictures)}

    def absorb(self, state: Any) -> None:
        """Adds the state of another instance, whose records come after these."""
        for split, part in state["splits"].items():
            self._counts[split] += part["count"]
            self._classes[split] += np.array(part["classes"], np.int64)
            for name, numbers in part["numbers"].items():
                self._numbers[split][name].absorb(Numbers(**numbers))
            self.samples[split].add(*part["sample"])
        self.pictures.add(*state["pictures"])

    def describe(self) -> dict[str, Split]:
        """Returns each split as in the manifest, but without shards.

        Raises:
          UserError: If a column with the encoding `numeric` has no values in the training split.
        """
        for encoding in (*self._examples.deep, *self._examples.wide):
            name = encoding.columns[0]
            if encoding.kind == "numeric" and not self._numbers["train"][name].count:
                raise UserError(
                    f"column {name!r} has no values in the training split, so it cannot be "
                    "normalised"
                )
        return {
            split: Split(
                examples=self._counts[split],
                class_histogram=tuple(self._classes[split].tolist()),
                shards=(),
                summaries={
                    name: numbers.summary() for name, numbers in self._numbers[split].items()
                },
            )
            for split in SPLITS
        }

    def _scalars(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """Returns the columns with one value for each record.

        Of the label, only the numbers of a regression are included: a column `label.TARGET` for
        each target.
        """
        scalars = {
            name: values
            for name, values in columns.items()
            if name != LABEL and (not isinstance(values, np.ndarray) or values.ndim == 1)
        }
        if self._examples.task == REGRESSION:
            targets = columns[LABEL].reshape(len(columns[LABEL]), -1)
            scalars |= {
                f"{LABEL}.{name}": targets[:, i] for i, name in enumerate(self._examples.targets)
            }
        return scalars


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

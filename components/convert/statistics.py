"""Statistics of a dataset: exact figures of each split, and a random sample of its records for the page.

    statistics = Statistics(examples)
    statistics.add("train", columns, missing, measures, hashes)         # of a block, all of one split
    statistics.absorb(other.state())                                    # JSON; of the piece that comes next
    statistics.describe()["train"].summaries["fare"].mean

Mean and deviation are put together as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances" (1979). The same pieces in the same order give the same figures.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import io
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

_SAMPLE_RECORDS, _SAMPLE_VALUES, _MIN_RECORDS = 1_000, 200_000, 20
_MAX_CHARACTERS = 80  # Of a text in a sample.
_PICTURES, _PICTURE_SIDE = 100, 64  # Images, and pixels of the longer side.


@dataclasses.dataclass
class Numbers:
    """Exact figures of the numbers of one column in one split.

    Attributes:
      missing: Records without a value in the source.
      count: Of the other records, as are all that follow.
      squares: Sum of the squared deviations from the mean.
      min: Smallest number.
      max: Largest number.
    """

    missing: int = 0
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    min: float = math.inf
    max: float = -math.inf

    def add(self, values: np.ndarray) -> None:
        """Adds numbers [N]."""
        if not len(values):
            return
        ends = {
            "min": values.min().item() + 0,
            "max": values.max().item() + 0,
        }  # Adding 0 makes 0.0 of -0.0.
        values = values.astype(np.float64)
        mean = values[0] + (values - values[0]).mean()  # A constant has no deviation so.
        squares = ((values - mean) ** 2).sum()
        self.absorb(Numbers(count=len(values), mean=float(mean), squares=float(squares), **ends))

    def absorb(self, other: Numbers) -> None:
        """Adds the numbers of another one, which come behind."""
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
        """Returns what the manifest says."""
        if not self.count:
            return Summary(missing=self.missing)
        std = math.sqrt(self.squares / self.count)
        return Summary(missing=self.missing, mean=self.mean, std=std, min=self.min, max=self.max)


class Sample:
    """Records with the smallest content hashes, a random choice that no order or division of the data changes.

    Attributes:
      size: Number of records at most.
      columns: Values of the records by column, in the order of their hashes.
    """

    def __init__(self, size: int):
        self.size = size
        self.columns: dict[str, list[Any]] = {}
        self._hashes: list[int] = []

    def candidates(self, hashes: np.ndarray) -> np.ndarray:
        """Returns the rows, int64 [M], of records that may belong to the sample."""
        rows = np.argsort(hashes, kind="stable")[: self.size]
        is_full = len(self._hashes) == self.size
        return rows[hashes[rows] < np.uint64(self._hashes[-1])] if is_full else rows

    def add(self, hashes: Sequence[int], columns: Mapping[str, Sequence[Any]]) -> None:
        """Adds records, and keeps those that belong to the sample."""
        if not len(hashes):
            return
        known = [*self._hashes, *hashes]
        order = sorted(range(len(known)), key=known.__getitem__)[: self.size]
        self._hashes = [known[row] for row in order]
        for name, values in columns.items():
            merged = [*self.columns.get(name, ()), *values]
            self.columns[name] = [merged[row] for row in order]

    def state(self) -> Any:
        """Returns what `add` takes, as JSON."""
        return self._hashes, self.columns


class Statistics:
    """Figures and samples of the splits, of all pieces or `of_piece`, one of them.

    Attributes:
      samples: By split, records with the values of their columns: numbers; texts, cut; None where a
        value is missing; the mean pixel value of images of one shape. Image files are left out.
      pictures: Training images as columns `label` and `picture`: as they are stored where they were
        added, and small PPM files in base64 where the state of others was absorbed.
    """

    def __init__(self, examples: Examples, *, of_piece: bool = False):
        self._examples = examples
        records = max(_MIN_RECORDS, min(_SAMPLE_RECORDS, _SAMPLE_VALUES // len(examples.features)))
        # Hashes are spread evenly, so that one piece of many has few of the smallest.
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
        """Adds N records of a split, as in a `Block`."""
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
            images = columns[image.name]
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
        """Returns the figures and samples as JSON, which `absorb` of another instance takes."""
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
        if pictures:
            pictures = {
                **pictures,
                "picture": [_picture(image, self._image) for image in pictures["picture"]],
            }
        return {"splits": splits, "pictures": (hashes, pictures)}

    def absorb(self, state: Any) -> None:
        """Adds what another one knows, of records that come later."""
        for split, part in state["splits"].items():
            self._counts[split] += part["count"]
            self._classes[split] += np.array(part["classes"], np.int64)
            for name, numbers in part["numbers"].items():
                self._numbers[split][name].absorb(Numbers(**numbers))
            self.samples[split].add(*part["sample"])
        self.pictures.add(*state["pictures"])

    def describe(self) -> dict[str, Split]:
        """Returns the manifest's splits, without shards.

        Raises:
          UserError: If a column that is to be normalised has no values in the training split.
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
        """Returns the columns with one value for each record; of the label only numbers that are predicted, by target."""
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


def _picture(image: np.ndarray | bytes, feature: Feature) -> str:
    """Returns an image, which is pixels or a file, as a small one in PPM (which is not compressed) and base64.

    Its pixels are stretched to the range of a byte.
    """
    from PIL import Image  # Slow to import, and tables do without.

    *size, channels = feature.shape
    if isinstance(image, bytes):
        image = decode(image, "", channels=channels, size=tuple(size))
    low, high = feature.value_range
    pixels = ((image - low) * (255 / (high - low))).astype(np.uint8)
    picture = Image.fromarray(pixels if channels == 3 else pixels[..., 0])
    picture.thumbnail((_PICTURE_SIDE, _PICTURE_SIDE))
    file = io.BytesIO()
    picture.save(file, "PPM")
    return base64.b64encode(file.getvalue()).decode()


def _values(column: Column, is_missing: np.ndarray | None, rows: np.ndarray) -> list[Any]:
    """Returns the values of sampled records as JSON."""
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

"""Page `dataset.html` of a dataset: its content, and how its splits compare.

    page.render(manifest, statistics)

The page is one file without scripts. Drift between two splits is the Jensen-Shannon divergence,
base 2, of their histograms. It lies between 0 and 1 (Lin, "Divergence measures based on the Shannon
entropy", 1991).
"""

import base64
import collections
import dataclasses
import datetime
import io
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from common.manifest import MULTI_LABEL, REGRESSION, Manifest
from common.pages import render_page, templates
from components.convert.source import LABEL
from components.convert.statistics import Statistics

# The largest numbers of each that the page shows.
_CLASSES, _COLUMNS, _CATEGORIES, _ROWS = 100, 100, 10, 8
_BARS = 20  # Bars of a histogram of numbers, without those of the tails and of missing values.
SECONDS = "seconds since 1970-01-01 UTC"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Histogram:
    """Distribution of a column's values in each split, the training split first.

    Attributes:
      name: Name of the column.
      categories: Most frequent values, one for each bin, of a column of categories; else empty.
      edges: Edges of the bins, ascending, of a column of numbers; else empty.
      shares: Fraction of a split's values in each bin, float [splits, bins]. A column of categories
        has a bin for each of `categories`, then one for all other values. A column of numbers has a
        bin for values below the first edge, one between each two edges, one from the last edge on,
        and one for missing values.
    """

    name: str
    categories: Sequence[str | int | None] = ()
    edges: Sequence[float] = ()
    shares: np.ndarray

    @property
    def drifts(self) -> list[float]:
        """Divergence of each other split from the training split, from 0 to 1."""
        train, others = self.shares[0], self.shares[1:]
        divergences = _entropy((train + others) / 2) - (_entropy(train) + _entropy(others)) / 2
        return np.maximum(0, divergences).tolist()  # Rounding can make them negative.


def render(manifest: Manifest, statistics: Mapping[str, Statistics]) -> str:
    """Returns the HTML of a dataset's page.

    Args:
      manifest: Manifest of the dataset; its training split has examples.
      statistics: Statistics of each split, by name; their pictures come from `absorb`.
    """
    splits = {name: split for name, split in manifest.splits.items() if split.examples}
    train = statistics["train"]
    samples = [[record for _, record in statistics[name].sample.records] for name in splits]
    names, rows = [*samples[0][0]], samples[0][:_ROWS]
    categorical = {
        e.columns[0]
        for e in (*manifest.deep, *manifest.wide)
        if e.kind in ("vocabulary", "hash", "words")
    } | {feature.name for feature in manifest.features if feature.dtype == "string"}
    histograms = [
        _histogram(
            name,
            [[record[name] for record in sample] for sample in samples],
            is_categorical=name in categorical,
        )
        for name in names
        if name != LABEL
    ]
    histograms.sort(key=lambda histogram: (-max(histogram.drifts, default=0), histogram.name))
    body = (
        templates("components.convert")
        .get_template("dataset.html")
        .render(
            m=manifest,
            splits=splits,
            max_classes=_CLASSES,
            pictures=[
                (_label_text(manifest, record[LABEL]), _data_uri(*record["picture"]))
                for _, record in train.pictures.records
            ],
            rows={name: [record[name] for record in rows] for name in names[:_COLUMNS]}
            | {LABEL: [_label_text(manifest, record[LABEL]) for record in rows]},
            histograms=histograms[:_COLUMNS],
            num_hidden=len(histograms[_COLUMNS:]),
            units={feature.name: feature.unit for feature in manifest.features},
            sample_size=train.sample.size,
            number=format_number,
        )
    )
    return render_page(f"Dataset {manifest.name}", body)


def _data_uri(shape: Sequence[int], pixels: str) -> str:
    """Returns pixels, uint8 of this shape in base64, as a PNG file in a data URI."""
    from PIL import Image  # Slow to import, and tables do without.

    image = np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(shape)
    file = io.BytesIO()
    Image.fromarray(image if shape[2] == 3 else image[..., 0]).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def format_number(value: float | None, unit: str | None = None) -> str:
    """Returns a number as text for people.

    Args:
      value: Number, or None for a dash.
      unit: Unit of the number. With `SECONDS`, it is shown as a date and time in UTC, unless it is
        1e11 or more, or -1e11 or less.

    Returns:
      An `int` with commas between thousands; any other number with 4 significant digits, or from
      10,000 up to 1e15 as a whole number with commas.
    """
    if value is None:
        return "–"
    if unit == SECONDS and abs(value) < 1e11:
        return f"{datetime.datetime.fromtimestamp(value, datetime.UTC):%Y-%m-%d %H:%M:%S}"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:,.4g}"


def _histogram(name: str, samples: Sequence[Sequence[Any]], *, is_categorical: bool) -> Histogram:
    """Returns the histogram of a column.

    Args:
      name: Name of the column.
      samples: Values in each split, None for a missing one; the training split first.
      is_categorical: Whether to count categories: the 10 most frequent values of the training split
        get a bin each, and all other values of any split share the last one; None counts as a
        value. Else the edges of the bins span the central 98 % of the training split's numbers;
        smaller numbers, larger numbers and missing ones have a bin each.

    Returns:
      The histogram, with the share of each split's values in each bin.
    """
    bins: list[Any]
    categories, edges = list[Any](), list[float]()
    if is_categorical:
        common = collections.Counter(samples[0]).most_common(_CATEGORIES)
        categories = [category for category, _ in common]
        bin_of = {category: i for i, category in enumerate(categories)}
        bins = [[bin_of.get(value, len(categories)) for value in sample] for sample in samples]
    else:
        # None becomes NaN, which sorts behind infinity and so falls into the last bin.
        arrays = [np.array(sample, np.float64) for sample in samples]
        values = arrays[0][~np.isnan(arrays[0])]
        low, high = np.quantile(values, (0.01, 0.99)) if len(values) else (0.0, 0.0)
        edges = np.linspace(low, high if high > low else low + 1, _BARS + 1).tolist()
        bins = [np.searchsorted([*edges, np.inf], array, side="right") for array in arrays]
    count = len(categories) + 1 if is_categorical else len(edges) + 2
    shares = [np.bincount(each, minlength=count) / len(each) for each in bins]
    return Histogram(name=name, categories=categories, edges=edges, shares=np.array(shares))


def _entropy(shares: np.ndarray) -> np.ndarray:
    """Returns the entropy, in bits, of distributions [..., bins]."""
    return -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=-1)


def _label_text(manifest: Manifest, label: Any) -> str:
    if manifest.task == REGRESSION:
        return ", ".join(map(format_number, label if isinstance(label, list) else [label]))
    if manifest.task == MULTI_LABEL:
        return ", ".join(itertools.compress(manifest.targets, label)) or "none"
    return manifest.class_names[label]

"""Page of a dataset, `dataset.html`: its content and how its splits compare, in one file without scripts.

page.render(manifest, statistics)

Drift is measured as TensorFlow Data Validation does (https://www.tensorflow.org/tfx/data_validation/get_started): the L-infinity
distance of categories, the Jensen-Shannon divergence (base 2) of the histograms of numbers. Both lie between 0 and 1.
"""

import base64
import collections
import datetime
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from common.manifest import MULTI_LABEL, REGRESSION, Manifest
from common.pages import render_page, templates
from components.convert.source import LABEL
from components.convert.statistics import Statistics

_CLASSES, _COLUMNS, _CATEGORIES, _ROWS = 100, 100, 10, 8  # That are shown.
_BARS = 20  # Of a histogram, beside those of the tails.
_PICTURES = 10  # Of a label, or of a regression.
_GAP = 1  # Pixels between pictures.
SECONDS = "seconds since 1970-01-01 UTC"


def render(manifest: Manifest, statistics: Statistics) -> str:
    """Returns the text of the page."""
    splits = {name: split for name, split in manifest.splits.items() if split.examples}
    samples = {name: statistics.samples[name].columns for name in splits}
    names = manifest.class_names or manifest.targets
    kind = {MULTI_LABEL: "label", REGRESSION: "target"}.get(manifest.task, "class")
    hidden = {LABEL, *(feature.name for feature in manifest.features if feature.encoding)}
    columns = [name for name in samples["train"] if name not in hidden]
    numbers = [name for name in columns if name not in _categories(manifest)]
    histograms = {name: _histograms([sample[name] for sample in samples.values()]) for name in numbers}
    shares = {name: [_shares(sample[name]) for sample in samples.values()] for name in columns if name not in numbers}
    drifts = {name: [_divergence(each[0], other) for other in each[1:]] for name, (_, each) in histograms.items()}
    drifts |= {name: [_distance(each[0], other) for other in each[1:]] for name, each in shares.items()}
    body = (
        templates("components.convert")
        .get_template("dataset.html")
        .render(
            m=manifest,
            splits=splits,
            kind=kind,
            kinds="classes" if kind == "class" else kind + "s" * (len(names) > 1),
            names=names,
            counted=[] if manifest.task == REGRESSION else [*enumerate(names[:_CLASSES])],
            strips=[*_strips(manifest, statistics)] if statistics.pictures.columns else [],
            rows=[] if statistics.image else [*_rows(manifest, samples["train"])],
            histograms=dict(itertools.islice(histograms.items(), _COLUMNS)),
            categories={name: _frequent(each) for name, each in itertools.islice(shares.items(), _COLUMNS)},
            num_hidden=max(0, len(histograms) - _COLUMNS) + max(0, len(shares) - _COLUMNS),
            drifts=sorted(drifts.items(), key=lambda item: (-max(item[1], default=0), item[0]))[:_COLUMNS],
            units={feature.name: feature.unit for feature in manifest.features},
            sample_size=statistics.samples["train"].size,
            arguments={
                name: value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
                for name, value in manifest.arguments.items()
            },
            number=format_number,
        )
    )
    return render_page(f"Dataset {manifest.name}", body)


def format_number(value: float | None, unit: str | None = None) -> str:
    """Returns a number as people write it: a point in time as a date, a whole number as it is, any other with 4 digits."""
    if value is None:
        return "–"
    if unit == SECONDS and abs(value) < 1e11:
        return f"{datetime.datetime.fromtimestamp(value, datetime.UTC):%Y-%m-%d %H:%M:%S}"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.4g}"


def _categories(manifest: Manifest) -> set[str]:
    """Returns the names of the columns whose values are categories."""
    encodings = (*manifest.deep, *manifest.wide)
    encoded = {e.columns[0] for e in encodings if e.kind in ("vocabulary", "hash", "words")}
    return encoded | {feature.name for feature in manifest.features if feature.dtype == "string"}


def _histograms(samples: Sequence[Sequence[float | None]]) -> tuple[list[float], list[np.ndarray]]:
    """Returns edges over the central 98 % of the first sample, and of each sample the shares of its records.

    The shares are of values below the first edge, between edges, from the last edge on, and of missing values.
    """
    values = [np.array([value for value in sample if value is not None], np.float64) for sample in samples]
    low, high = np.quantile(values[0], (0.01, 0.99)) if len(values[0]) else (0.0, 0.0)
    edges = np.linspace(low, high if high > low else low + 1, _BARS + 1)
    counts = [np.bincount(np.searchsorted(edges, each, side="right"), minlength=len(edges) + 1) for each in values]
    shares = [
        np.append(count, len(sample) - count.sum()) / max(1, len(sample))
        for count, sample in zip(counts, samples, strict=True)
    ]
    return edges.tolist(), shares


def _shares(sample: Sequence[Any]) -> dict[Any, float]:
    """Returns the share of each value, the most frequent first."""
    return {value: count / len(sample) for value, count in collections.Counter(sample).most_common()}


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    """Returns the Jensen-Shannon divergence, base 2, of two histograms."""
    mean = (p + q) / 2
    ratios = [part[part > 0] @ np.log2(part[part > 0] / mean[part > 0]) for part in (p, q)]
    return float(sum(ratios)) / 2


def _distance(p: Mapping[Any, float], q: Mapping[Any, float]) -> float:
    return max(abs(p.get(value, 0) - q.get(value, 0)) for value in {**p, **q})


def _frequent(shares: Sequence[Mapping[Any, float]]) -> list[tuple[str, list[float]]]:
    """Returns the most frequent values of the first split, each with its share in every split."""
    return [(value, [each.get(value, 0.0) for each in shares]) for value in itertools.islice(shares[0], _CATEGORIES)]


def _label_text(manifest: Manifest, label: Any) -> str:
    if manifest.task == REGRESSION:
        return ", ".join(map(format_number, label if isinstance(label, list) else [label]))
    if manifest.task == MULTI_LABEL:
        return ", ".join(itertools.compress(manifest.targets, label)) or "none"
    return manifest.class_names[label]


def _rows(manifest: Manifest, sample: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, str | None]]:
    """Yields a few records, each a text by column."""
    for i in range(min(_ROWS, len(sample[LABEL]))):
        row = {name: values[i] for name, values in itertools.islice(sample.items(), _COLUMNS) if name != LABEL}
        yield {LABEL: _label_text(manifest, sample[LABEL][i]), **row}


def _strips(manifest: Manifest, statistics: Statistics) -> Iterator[dict[str, Any]]:
    """Yields for each label, or for some numbers, the pictures side by side, as a PNG in a data URI with its size in pixels."""
    height, width, channels = statistics.picture_shape
    low, high = statistics.image.value_range
    by_label: dict[str, list[np.ndarray]] = {}
    labels = [_label_text(manifest, label) for label in statistics.pictures.columns[LABEL]]
    if manifest.task == REGRESSION:
        labels = ["; ".join(labels[:_PICTURES])] * len(labels[:_PICTURES])
    for label, pixels in zip(labels, statistics.pictures.columns["pixels"], strict=False):
        picture = np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(height, width, channels)
        picture = ((picture - low) * (255 / (high - low))).astype(np.uint8)
        padded = np.pad(picture, ((0, 0), (0, _GAP), (0, 0)), constant_values=128)
        by_label.setdefault(label, []).append(padded)
    known = {name: by_label.pop(name) for name in manifest.class_names if name in by_label}
    for name, pictures in {**known, **by_label}.items():
        strip = np.concatenate(pictures[:_PICTURES], axis=1)[:, :-_GAP]
        file = io.BytesIO()
        Image.fromarray(strip if channels == 3 else strip[..., 0]).save(file, "PNG", optimize=True)
        uri = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
        yield {"name": name, "uri": uri, "width": strip.shape[1], "height": height}

from __future__ import annotations

import math

import numpy as np
import pytest
import trips
from PIL import Image

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.writing.splits import carve
from trainer.base.feature_summary import Summary
from trainer.base.manifest import Manifest

SCHEMA = {
    "name": "trips",
    "origin": "made up",
    "columns": {
        "fare": {"type": "float", "unit": "USD", "default": -1.0},
        "hour": {"type": "int", "default": 99},
        "area": {"type": "int"},
        "company": {"type": "string", "default": ""},
        "tip": {"type": "string"},
    },
    "label": {"column": "tip", "classes": ["no", "yes"]},
    "deep": [{"column": "fare", "numeric": "z_score"}, {"column": "company", "vocabulary": 2, "embedding": 3}],
    "wide": [{"column": "area", "vocabulary": 2}, {"column": "company", "hash_buckets": 7}],
}


def made(count: int) -> list[dict[str, str]]:
    random = np.random.default_rng(count)
    return [
        {
            "fare": random.choice(["", f"{random.gamma(2, 5):.2f}"], p=[0.2, 0.8]),
            "hour": random.choice(["", *map(str, range(24))]),
            "area": str(random.choice([8, 32, 76], p=[0.6, 0.3, 0.1])),
            "company": random.choice(["", "Blue", "Ünited", "Zed"], p=[0.3, 0.4, 0.2, 0.1]),
            "tip": random.choice(["no", "yes"]),
        }
        for _ in range(count)
    ]


def test_the_manifest_says_what_every_split_of_a_table_holds(tmp_path):
    rows = made(600)
    manifest = convert(Options(**trips.write(tmp_path, rows, SCHEMA), output=str(tmp_path / "out")))
    assert Manifest.load(tmp_path / "out") == manifest
    parts = carve({"train": len(rows)}, validation_fraction=0.1, test_fraction=0.2, seed=0)
    edges = {name: summary.edges for name, summary in manifest.splits["train"].summaries.items()}
    for split, part in manifest.splits.items():
        chosen = [rows[i] for i in parts[split][1][:]]
        assert sorted(part.summaries) == ["area", "company", "fare", "hour", "tip"]
        for name, kind in (("fare", np.float32), ("hour", np.int64)):
            values = np.array([row[name] for row in chosen if row[name]], kind)
            summary = part.summaries[name]
            assert summary.missing == len(chosen) - len(values) > 0
            assert (summary.min, summary.max) == (values.min(), values.max())
            assert summary.mean == math.fsum(values.tolist()) / len(values)
            assert summary.std == pytest.approx(values.astype(float).std(), rel=1e-12)
            bins = np.searchsorted(np.array(edges[name]), values, side="right")
            assert summary.histogram == tuple(np.bincount(bins, minlength=len(edges[name]) + 1))
            assert summary.unique is None and (summary.edges is None) == (split != "train")
        companies = [row["company"] for row in chosen]
        summary = part.summaries["company"]
        assert summary.missing == companies.count("") and summary.unique == len(set(companies))
        assert dict(zip(summary.frequent, summary.counts, strict=True)) == {c: companies.count(c) for c in companies}
        assert summary.in_vocabulary == sum(c in manifest.deep[1].vocabulary for c in companies)
        areas = [int(row["area"]) for row in chosen]
        summary = part.summaries["area"]
        assert summary.in_vocabulary == sum(area in (8, 32) for area in areas)
        assert (summary.frequent[0], summary.counts[0], summary.mean) == (8, areas.count(8), np.mean(areas))
    for feature in manifest.features:  # a model gets the numbers of the training split
        if summary := manifest.splits["train"].summaries.get(feature.name):
            assert feature.statistics == Summary(
                **{what: getattr(summary, what) for what in ("missing", "mean", "std", "min", "max")}
            )
    assert manifest.feature("label").statistics is None


def test_images_that_are_files_have_sizes(tmp_path):
    random = np.random.default_rng(0)
    sizes = {}
    for i in range(40):
        path = tmp_path / "source" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = random.integers(5, 60, 2).tolist()
        Image.new("RGB", (width, height)).save(path)
        sizes[path] = height, width, path.stat().st_size
    options = {"dataset": "images", "source": str(tmp_path / "source"), "encoding": "source"}
    manifest = convert(
        Options(**options, output=str(tmp_path / "out"), shards=1, validation_fraction=0, test_fraction=0)
    )
    summaries = manifest.splits["train"].summaries
    assert sorted(summaries) == ["image.bytes", "image.height", "image.width"]
    for i, name in enumerate(("image.height", "image.width", "image.bytes")):
        values = [size[i] for size in sizes.values()]
        assert (summaries[name].min, summaries[name].max) == (min(values), max(values))
        assert summaries[name].mean == sum(values) / len(values) and sum(summaries[name].histogram) == len(values)


def test_a_column_without_any_value_and_a_constant_one(tmp_path):
    rows = [{**row, "hour": "", "fare": "2.5", "company": "only"} for row in made(60)]
    manifest = convert(Options(**trips.write(tmp_path, rows, SCHEMA), output=str(tmp_path / "out"), shards=1))
    train, test = manifest.splits["train"], manifest.splits["test"]
    assert train.summaries["hour"].mean is None and train.summaries["hour"].missing == train.examples
    assert (train.summaries["fare"].std, train.summaries["company"].unique) == (0.0, 1)
    assert test.drift["hour"] == test.drift["fare"] == test.drift["company"] == 0

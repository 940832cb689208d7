import numpy as np
import pytest
import trips
from divided import drawn
from PIL import Image

from common.manifest import Manifest, Summary
from components.convert.convert import convert
from components.convert.options import Options


def test_the_manifest_says_what_every_split_of_a_table_holds(tmp_path):
    rows = trips.rows(600)
    manifest = convert(Options(**trips.write(tmp_path, rows), output=str(tmp_path / "out")))
    assert Manifest.load(tmp_path / "out") == manifest
    parts = drawn(len(rows))
    edges = {name: summary.edges for name, summary in manifest.splits["train"].summaries.items()}
    for split, part in manifest.splits.items():
        chosen = [rows[i] for i in parts[split]]
        assert sorted(part.summaries) == sorted(trips.SCHEMA["columns"])
        for name, kind in (("miles", np.float32), ("when", np.int64)):
            values = np.array([row[name] for row in chosen if row[name] != ""], kind)
            summary = part.summaries[name]
            assert summary.missing == len(chosen) - len(values)
            assert summary.mean == pytest.approx(values.astype(np.float64).mean(), rel=1e-12)
            bins = np.searchsorted(np.array(edges[name]), values, side="right")
            assert summary.histogram == tuple(np.bincount(bins, minlength=len(edges[name]) + 1))
            assert summary.unique is None and (summary.edges is None) == (split != "train")
        companies = [row["company"] for row in chosen]
        summary = part.summaries["company"]
        assert summary.missing == companies.count("") and summary.unique == len(set(companies))
        assert dict(zip(summary.frequent, summary.counts, strict=True)) == {c: companies.count(c) for c in companies}
        assert summary.in_vocabulary == sum(c in manifest.wide[2].vocabulary for c in companies)
        present = [row["area"] for row in chosen if row["area"] != ""]
        areas = present + [-1] * (len(chosen) - len(present))  # the default
        summary = part.summaries["area"]
        assert summary.missing == len(chosen) - len(present) > 0
        assert summary.in_vocabulary == sum(area in manifest.deep[5].vocabulary for area in areas)
        counts = {area: areas.count(area) for area in areas}
        assert list(summary.counts) == sorted(counts.values(), reverse=True)[:10]
        assert dict(zip(summary.frequent, summary.counts, strict=True)).items() <= counts.items()
        assert summary.mean == pytest.approx(np.mean(present), rel=1e-12)
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
        assert summaries[name].mean == pytest.approx(sum(values) / len(values)) and sum(
            summaries[name].histogram
        ) == len(values)

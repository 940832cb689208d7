"""Processes, memory, the order of tasks and packing decide how fast a conversion is, and nothing else."""

import dataclasses
import pathlib
import random

import numpy as np
import pytest
import trips
from PIL import Image

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.writing import workers


@pytest.fixture(scope="module", params=["idx", "packed idx", "csv", "targets", "images", "records"])
def options(request, tmp_path_factory, make_idx, write_records) -> Options:
    """A source of several thousand examples, or some hundred images."""
    root = tmp_path_factory.mktemp("source")
    if request.param == "targets":
        targets = {"same": "same", "sum": {"plus": ["same", "seconds"]}, "when": "when"}
        schema = {**trips.SCHEMA, "label": {"regression": targets}, "deep": trips.SCHEMA["deep"][:1], "wide": []}
        kind = trips.write(root, trips.rows(3000), schema)
    elif request.param == "csv":
        rows = [{**row, "company": f"{row['company']}, {'x' * (i % 60)}"} for i, row in enumerate(trips.rows(3000))]
        kind = trips.write(root, rows, {**trips.SCHEMA, "filter": {"greater": ["seconds", 100]}})
    elif request.param in ("images", "records"):
        pixels = (np.random.default_rng(i).integers(0, 256, (9, 4 + i % 3, 3), np.uint8) for i in range(300))
        paths = [root / "source" / "ab"[i % 2] / f"{i}.png" for i in range(300)]
        for path, image in zip(paths, pixels, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
        kind = {"dataset": "images", "source": str(root / "source")}
        if request.param == "records":
            records = [{"image": path.read_bytes(), "label": i % 2} for i, path in enumerate(paths)]
            paths = [write_records(root / f"{i}.tfrecord", records[i::3]) for i in range(3)]
            (root / "schema.yaml").write_text("{name: t, origin: t, image: image, label: label, classes: 2}")
            kind = {"dataset": "tfrecord", "source": tuple(map(str, paths)), "schema": str(root / "schema.yaml")}
    else:
        for place in ("plain", "packed"):
            make_idx(root / place, size=(9, 7), packed=place == "packed", train=3000, test=500)
        kind = {"dataset": "idx", "source": str(root / ("packed" if "packed" in request.param else "plain"))}
    return Options(**kind, output=str(root / "out"), shards=7)


@pytest.fixture(scope="module")
def expected(options, content) -> dict[str, bytes]:
    """What one process makes that has all memory, of files that are not packed."""
    source = options.source
    source = source if isinstance(source, tuple) else source.replace("/packed", "/plain")
    convert(dataclasses.replace(options, source=source, processes=1))
    return content(pathlib.Path(options.output))


@pytest.mark.parametrize(("processes", "threads"), [(2, False), (3, True)])
def test_with_several_processes(tmp_path, monkeypatch, options, expected, content, processes, threads):
    if threads:
        monkeypatch.setattr(workers.sys, "platform", "another")
    convert(dataclasses.replace(options, output=str(tmp_path), processes=processes))
    assert content(tmp_path) == expected


def test_in_any_order_of_tasks(tmp_path, monkeypatch, options, expected, content):
    run = workers.run

    def shuffled(work, tasks, *, processes, advance):
        order = random.Random(0).sample(range(len(tasks)), len(tasks))
        done = run(work, [tasks[i] for i in order], processes=processes, advance=advance)
        return ((order[i], result) for i, result in done)

    monkeypatch.setattr(workers, "run", shuffled)
    convert(dataclasses.replace(options, output=str(tmp_path), processes=3))
    assert content(tmp_path) == expected

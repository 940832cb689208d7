import pathlib
from collections.abc import Callable

import pytest
from small_sources import SOURCES, rows


@pytest.fixture
def made(tmp_path, make_idx, write_records) -> Callable[..., tuple[dict[str, str], pathlib.Path]]:
    """Makes a source; returns its flags and the path at a place in it."""

    def make(dataset: str, place: str, under: pathlib.Path = tmp_path) -> tuple[dict[str, str], pathlib.Path]:
        root, (maker, _) = under / "source", SOURCES[dataset]
        if maker:
            paths = maker(root)
        elif dataset == "tfrecord":
            for name in ("a.tfrecord", "more/b.tfrecord"):
                write_records(root / name, [{"a": [i], "kind": [b"xy"[i % 2 : i % 2 + 1]]} for i in range(9)])
            rows(root / "_rows")
            paths = {"source": root, "schema": (root / "_rows" / "schema.yaml").rename(root / "_schema.yaml")}
        else:
            make_idx(root, train=30, test=10, packed=False)
            paths = {"source": root}
        flags = {name: str(path) for name, path in paths.items()}
        return {"dataset": dataset, **flags}, root / place

    return make

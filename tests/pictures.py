"""Folders of made-up pictures of two classes."""

import base64
import pathlib

import numpy as np
from PIL import Image

from common.manifest import Manifest
from components.convert.options import Options
from tests.rides import convert_quietly


def convert_pictures(folder: pathlib.Path, count: int = 40) -> tuple[Manifest, list[pathlib.Path]]:
    """Writes PNG files of noise, 8 x 9 pixels, to `source`, and converts them to `data`.

    Returns:
      The manifest, and the files in the order of their paths.
    """
    draw, paths = np.random.default_rng(0), []
    for i in range(count):
        paths.append(folder / "source" / "ab"[i % 2] / f"{i:02}.png")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (8, 9, 3), np.uint8)).save(paths[-1])
    options = {"source": str(folder / "source"), "output": str(folder / "data")}
    return convert_quietly(Options(dataset="images", **options)), sorted(paths)


def encoded(path: pathlib.Path) -> dict[str, str]:
    """Returns a file as JSON holds it in a request."""
    return {"b64": base64.b64encode(path.read_bytes()).decode()}

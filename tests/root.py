"""Directory of the project."""

import pathlib

ROOT = pathlib.Path(__file__).parents[1]

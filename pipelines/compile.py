"""Writes the pipeline's specs: `python pipelines/compile.py`, with `--image REF` for Vertex AI."""

import dataclasses
import pathlib
import re
import warnings
from collections.abc import Sequence
from typing import Any

from kfp import compiler

from common.cli import Parser, as_list, run_cli
from common.container_engine import DEFAULT_IMAGE
from common.errors import UserError, writable
from common.flags import local
from components.train.backends.job_settings import JobSettings
from components.train.cluster.lookup import load_cluster
from pipelines.cloud_options import DEFAULT_CLUSTER, KEYS, scheduled_as
from pipelines.training import BACKENDS, NAME, build

_IMAGE = re.compile(r"[a-z0-9][\w.:/-]*(@sha256:[0-9a-f.]+)?")


def compile_specs(
    image: str, output_dir: str, backends: Sequence[str] = BACKENDS, **options: Any
) -> list[pathlib.Path]:
    """Writes `training-<backend>.yaml` for each, with `options` of `build`: the same bytes every time. Returns the paths."""
    if not _IMAGE.fullmatch(image):
        raise UserError(f"--image {image!r} is no image reference; give registry/repository/name@sha256:digest")
    paths = [pathlib.Path(output_dir) / f"{NAME}-{backend}.yaml" for backend in backends]
    with writable(f"--output-dir {output_dir}"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the pinned kfp, about its own future
        pathlib.Path(output_dir).mkdir(parents=True, exist_ok=True)
        for backend, path in zip(backends, paths, strict=True):
            compiler.Compiler().compile(build(backend, image, **options), str(path))
    return paths


def main() -> int:
    """Runs the command line."""
    keys = dataclasses.replace(KEYS, flags=("image", "cluster"))
    p = Parser(prog="pipelines/compile.py", description="Writes build/training-vertex.yaml and training-local.yaml.")
    p.add_argument("--output-dir", type=local, default="build", help="made when it is not there")
    keys.add_flags(p)
    args = p.parse_args()
    config = keys.read(args)
    cluster = scheduled_as(load_cluster(config.cluster or DEFAULT_CLUSTER, as_list(config.trainer_flags)), config)
    settings = JobSettings.of(config)
    settings.check(config.location)
    image = config.image or DEFAULT_IMAGE
    if "@sha256:" not in image:
        print(
            f"note: Vertex AI needs an image by digest, and {image} has none; "
            "give --image REGISTRY/NAME@sha256:DIGEST for training-vertex.yaml"
        )
    job = settings.arguments(cluster)
    for path in compile_specs(image, args.output_dir, job=job, job_args=settings.as_flags()):
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    run_cli(main)

"""Writes the pipeline's specs: `python pipelines/compile.py --image REF`."""

import dataclasses
import pathlib
from typing import Any

from kfp import compiler

from common.cli import Parser, run_cli
from common.container_engine import DEFAULT_IMAGE
from common.errors import writable
from common.flags import local
from components.train.backends.job_settings import JobSettings
from pipelines.cloud_options import cluster_of
from pipelines.kubeflow import KEYS
from pipelines.training import BACKENDS, NAME, build


def compile_specs(image: str, output_dir: str, **options: Any) -> list[pathlib.Path]:
    """Writes the spec `training-<backend>.yaml` for each back end.

    Equal arguments give equal bytes.

    Args:
      image: Container image of the steps.
      output_dir: Directory of the specs, made if it does not exist.
      **options: Further arguments of `pipelines.training.build`.

    Returns:
      The paths of the specs.

    Raises:
      UserError: If a spec cannot be written.
    """
    paths = [pathlib.Path(output_dir) / f"{NAME}-{backend}.yaml" for backend in BACKENDS]
    with writable(f"--output-dir {output_dir}"):
        pathlib.Path(output_dir).mkdir(parents=True, exist_ok=True)
        for backend, path in zip(BACKENDS, paths, strict=True):
            compiler.Compiler().compile(
                build(backend, image, is_template=True, **options), str(path)
            )
    return paths


def main() -> int:
    """Writes the pipeline's specs to the folder of the command line. Returns the exit code, 0.

    Raises:
      UserError: If the command line or a file that it names is wrong, or a spec cannot be written.
    """
    keys = dataclasses.replace(KEYS, flags=("image", "cluster", "claim"))
    p = Parser(
        prog="pipelines/compile.py",
        description="Writes build/training-vertex.yaml, training-kubeflow.yaml and "
        "training-local.yaml.",
    )
    p.add_argument("--output-dir", type=local, default="build", help="made when it is not there")
    keys.add_flags(p)
    args = p.parse_args()
    config = keys.read(args)
    cluster = cluster_of(config)
    settings = JobSettings.of(config)
    settings.check(config.location)
    image = config.image or DEFAULT_IMAGE
    if "@sha256:" not in image:
        print(
            f"note: Vertex AI needs an image by digest, and {image} has none; "
            "give --image REGISTRY/NAME@sha256:DIGEST for training-vertex.yaml"
        )
    options = {"job": settings.arguments(cluster), "job_args": settings.as_flags()}
    for path in compile_specs(image, args.output_dir, claim=config.claim, **options):
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    run_cli(main)

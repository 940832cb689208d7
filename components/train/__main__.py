"""Trains on a cluster: python -m components.train --cluster FILE [--dry-run] -- <trainer flags>"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from components.train import process
from components.train.cluster import Cluster
from components.train.local import planned
from components.train.vertex import plan_vertex
from trainer.errors import Parser, UserError, run_cli


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the job's exit code."""
    parser = Parser(
        prog="python -m components.train",
        usage="%(prog)s --cluster FILE [options] -- <trainer flags>",
        description="Trains on the machines of a cluster file. What follows '--' goes to python -m trainer.task.",
    )
    parser.add_argument(
        "--cluster", required=True, metavar="FILE", help="cluster file, for example clusters/local.yaml"
    )
    parser.add_argument(
        "--backend",
        choices=("process", "vertex"),
        default="process",
        help="process: one process per replica on this machine (default); vertex: prints the worker pools",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan as JSON and start nothing")
    parser.add_argument("--log-dir", metavar="DIR", help="one log per replica (default: <job-dir>/replicas)")
    parser.add_argument("--image", metavar="REF", help="container image of the vertex back end")
    parser.add_argument("flags", nargs="*", metavar="trainer flags", help="see python -m trainer.task --help")
    args = parser.parse_args(argv)
    cluster = Cluster.load(args.cluster)
    if args.backend == "vertex":
        return _vertex(cluster, args)
    with planned(cluster, args.flags, args.log_dir) as plan:
        if not args.dry_run:
            return process.run(plan)
        print(plan.to_json())
    return 0


def _vertex(cluster: Cluster, args: argparse.Namespace) -> int:
    if not args.dry_run:
        raise UserError("this command only plans for Vertex: add --dry-run, or submit with python pipelines/submit.py")
    if not args.image:
        raise UserError("the vertex back end needs a container image; add --image REF")
    print(json.dumps(plan_vertex(cluster, args.image, args.flags), indent=2))
    return 0


if __name__ == "__main__":
    run_cli(lambda: main(sys.argv[1:]))

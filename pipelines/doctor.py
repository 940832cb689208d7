"""Says what this machine, an image or a project of Google Cloud lacks, and what to do: `python pipelines/doctor.py --help`.

python pipelines/doctor.py                                # this machine, with whatever Python there is
python pipelines/doctor.py --project PROJECT --bucket gs://BUCKET    # and what runs on Vertex AI need; changes nothing
docker run --rm IMAGE pipelines.doctor --image            # an image, from inside
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Iterator

# So that a Python in which nothing is installed finds the project too.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from common.cli import Parser, run_cli
from common.errors import UserError
from pipelines.doctoring import machine_checks
from pipelines.doctoring.findings import FAILED, Finding


def main() -> int:
    """Runs the command line. Returns 1 if a check has failed; warnings are of what not everybody needs."""
    p = Parser(
        prog="pipelines/doctor.py", description="Checks this machine, an image or a project, and says what to do."
    )
    p.add_argument("--image", action="store_true", help="check the image that this runs in, and no machine")
    p.add_argument("--project", help="id of a project of Google Cloud to check too; with --bucket")
    p.add_argument("--bucket", help="gs://BUCKET for everything that runs write")
    p.add_argument("--location", default="us-central1", help="region of the runs")
    args = p.parse_args()
    if bool(args.project) != bool(args.bucket):
        raise UserError("--project and --bucket belong together; give both")
    code = 0
    for finding in _checks(args):
        print(finding, flush=True)
        code |= finding.status == FAILED
    return code


def _checks(args: argparse.Namespace) -> Iterator[Finding]:
    if args.image:
        from pipelines.doctoring import image_checks  # not for a Python that is too old

        yield from image_checks.checks()
        return
    yield from machine_checks.checks()
    if args.project:
        from pipelines.doctoring import project_checks

        yield from project_checks.checks(args.project, args.bucket, args.location)


if __name__ == "__main__":
    run_cli(main)

"""Says what this machine, an image or a project of Google Cloud lacks, and what to do: `python pipelines/doctor.py --help`.

python pipelines/doctor.py                                # this machine, with whatever Python there is
docker run --rm IMAGE pipelines.doctor --image            # an image, from inside
"""

import json
import pathlib
import sys

# So that a Python in which nothing is installed finds the project too.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from pipelines.doctoring import machine_checks
from pipelines.doctoring.findings import FAILED
from trainer.base.errors import Parser, run_cli


def main() -> int:
    """Runs the command line. Returns 1 if a check has failed; warnings are of what not everybody needs."""
    p = Parser(prog="pipelines/doctor.py", description="Checks this machine, or an image, and says what to do.")
    p.add_argument("--image", action="store_true", help="check the image that this runs in, and no machine")
    p.add_argument("--json", action="store_true", help="print a list of {name, status, meaning, repair}")
    args = p.parse_args()
    checks = machine_checks.checks
    if args.image:
        from pipelines.doctoring.image_checks import checks  # not for a Python that is too old
    findings = []
    for finding in checks():
        findings.append(finding)
        if not args.json:
            print(finding, flush=True)
    if args.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=1))
    return int(any(finding.status == FAILED for finding in findings))


if __name__ == "__main__":
    run_cli(main)

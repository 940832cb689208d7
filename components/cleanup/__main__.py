"""Lists, and deletes when asked to, what runs left behind, here or on Vertex AI: `python -m components.cleanup --help`."""

import argparse
import re
from collections.abc import Sequence

from common.cli import Parser, confirm, run_cli
from common.errors import UserError
from common.flags import at_least
from common.pages import table
from components.cleanup.cleanup import delete, unneeded


def main(argv: Sequence[str] | None = None) -> int:
    p = Parser(
        prog="components.cleanup",
        description="Lists what a pipeline run left that nobody needs: temporary files, checkpoints of the finished "
        "job, intermediate results. Summary, report, logs and model stay, and datasets, which are no run's own.",
    )
    p.add_argument("--run", default="", help="directory of the run, runs/<id>; on Vertex AI its id (none: all runs)")
    p.add_argument("--delete", action="store_true", help="delete what is listed")
    cloud = p.add_argument_group(
        "Vertex AI", "Also jobs that still run, versions, and datasets that nothing was trained on; what has an "
        "alias or is of a run that still runs stays. All three flags are needed."
    )  # fmt: skip
    cloud.add_argument("--project", help="id of the project")
    cloud.add_argument("--location", help="region")
    cloud.add_argument("--bucket", help="gs://BUCKET of the runs")
    cloud.add_argument("--keep-versions", type=at_least(1), metavar="K", help="newest ones of each model (None: all)")
    cloud.add_argument("--yes", action="store_true", help="delete without asking")
    args = p.parse_args(argv)
    place = (args.project, args.location, args.bucket)
    if any(place) or args.keep_versions or args.yes:
        if not all(place):
            raise UserError("--project, --location and --bucket go together: give all three for Vertex AI")
        return _vertex(args)
    if not args.run:
        raise UserError("give --run DIRECTORY for a run of this machine, or --project, --location and --bucket")
    leftovers = unneeded(args.run)
    for leftover in leftovers:
        print(f"{leftover.num_bytes / 1e6:10.2f} MB  {leftover.name}  ({leftover.why})")
    if args.delete:
        print(f"deleted {len(leftovers)} items, {delete(args.run, leftovers) / 1e6:.2f} MB")
    else:
        total = sum(leftover.num_bytes for leftover in leftovers)
        print(f"{len(leftovers)} items, {total / 1e6:.2f} MB; nothing was deleted (--delete does)")
    return 0


def _vertex(args: argparse.Namespace) -> int:
    from components.cleanup import project  # Google's clients take 3 s to import.

    bucket = args.bucket.rstrip("/")
    if not re.fullmatch("gs://[^/]+", bucket):
        raise UserError(f"--bucket {args.bucket}: give gs://BUCKET")

    def load() -> tuple[project.ProjectState, list[project.Leftover]]:
        state = project.load_state(args.project, args.location, bucket)
        return state, project.leftovers(state, keep_versions=args.keep_versions, run=args.run)

    _, listed = load()
    if listed:
        rows = [(e.kind, e.cost, f"{e.why}; stays: {e.unless}" if e.unless else e.why, e.name) for e in listed]
        print(table([("what", "costs", "why", "which"), *rows]))
    removable = {(leftover.kind, leftover.name) for leftover in listed if not leftover.unless}
    if not removable or not args.delete:
        print(f"{len(removable)} items; nothing was deleted{' (--delete does)' if removable else ''}")
        return 0
    if not args.yes and not confirm("delete all of this"):
        print("nothing was deleted")
        return 0
    state, listed = load()  # The answer may have taken an hour: what is needed by now stays.
    agreed = [leftover for leftover in listed if not leftover.unless and (leftover.kind, leftover.name) in removable]
    failed = [f"{leftover.name}: {error}" for leftover, error in project.remove(state, agreed) if error]
    print(f"deleted {len(agreed) - len(failed)} items")
    if failed:
        raise UserError(f"{len(failed)} items are left: {'; '.join(failed)}")
    return 0


if __name__ == "__main__":
    run_cli(main)

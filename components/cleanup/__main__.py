"""Lists, and on demand deletes, what runs left behind: `python -m components.cleanup --help`.

The runs may be on this machine or on Vertex AI.
"""

import functools
import re
from collections.abc import Sequence

from common.cli import Parser, confirm, run_cli
from common.errors import UserError
from common.flags import at_least
from common.pages import table
from components.cleanup import cleanup


def main(argv: Sequence[str] | None = None) -> int:
    p = Parser(
        prog="components.cleanup",
        description="Lists what a pipeline run left that nobody needs: temporary files, "
        "checkpoints of the finished job, intermediate results. Summary, report, logs and model "
        "stay, and datasets, which are no run's own.",
    )
    p.add_argument(
        "--run",
        default="",
        help="directory of the run, runs/<id>; on Vertex AI its id (none: all runs)",
    )
    p.add_argument("--delete", action="store_true", help="delete what is listed, after asking")
    p.add_argument("--yes", action="store_true", help="delete without asking")
    cloud = p.add_argument_group(
        "Vertex AI",
        "Also jobs that still run, and old versions; what has an alias or is of a run that still "
        "runs stays. The first three flags are needed.",
    )
    cloud.add_argument("--project", help="id of the project")
    cloud.add_argument("--location", help="region")
    cloud.add_argument("--bucket", help="gs://BUCKET of the runs")
    cloud.add_argument(
        "--keep-versions",
        type=at_least(1),
        metavar="K",
        help="newest ones of each model (None: all)",
    )
    args = p.parse_args(argv)
    place = (args.project, args.location, args.bucket)
    if all(place):
        from components.cleanup import project  # Google's clients take 3 s to import.

        place = (args.project, args.location, args.bucket.rstrip("/"))
        if not re.fullmatch("gs://[^/]+", place[2]):
            raise UserError(f"--bucket {args.bucket}: give gs://BUCKET")

        def find() -> list[cleanup.Leftover]:
            return project.leftovers(
                project.load_state(*place), keep_versions=args.keep_versions, run=args.run
            )

        delete = functools.partial(project.delete, *place)
    elif any(place) or args.keep_versions or not args.run:
        raise UserError(
            "give --run DIRECTORY for a run of this machine, or --project, --location and --bucket"
        )
    else:
        find = functools.partial(cleanup.unneeded, args.run)
        delete = functools.partial(cleanup.delete, args.run)
    leftovers = find()
    rows = [("what", "size", "why", "which")]
    rows += [
        (each.kind, f"{each.num_bytes / 1e6:,.2f} MB", each.why, each.name) for each in leftovers
    ]
    print(table(rows))
    if not args.delete:
        print(f"{len(leftovers)} items; nothing was deleted (--delete does)")
    elif leftovers and (args.yes or confirm("delete all of this")):
        agreed = {(each.kind, each.name) for each in leftovers}
        # The user may have answered an hour later, so everything is listed again. What somebody
        # needs by now stays.
        leftovers = [each for each in find() if (each.kind, each.name) in agreed]
        delete(leftovers)
        print(f"deleted {len(leftovers)} items")
    else:
        print("nothing was deleted")
    return 0


if __name__ == "__main__":
    run_cli(main)

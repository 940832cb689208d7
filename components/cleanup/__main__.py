"""Lists, and deletes when asked to, what a run left behind: `python -m components.cleanup --help`."""

from collections.abc import Sequence

from components.cleanup.cleanup import delete, unneeded
from trainer.base.errors import Parser, run_cli


def main(argv: Sequence[str] | None = None) -> int:
    p = Parser(
        prog="components.cleanup",
        description="Lists what a pipeline run left that nobody needs: temporary files, checkpoints of the finished "
        "job, intermediate results. Summary, report, logs and model stay, and datasets, which are no run's own.",
    )
    p.add_argument("--run", required=True, help="directory of the run, runs/<id>")
    p.add_argument("--delete", action="store_true", help="delete what is listed")
    args = p.parse_args(argv)
    candidates = unneeded(args.run)
    for candidate in candidates:
        print(f"{candidate.bytes / 1e6:10.2f} MB  {candidate.path}  ({candidate.why})")
    total = sum(c.bytes for c in candidates)
    if args.delete:
        print(f"deleted {len(candidates)} items, {delete(args.run, candidates) / 1e6:.2f} MB")
    else:
        print(f"{len(candidates)} items, {total / 1e6:.2f} MB; nothing was deleted (--delete does)")
    return 0


if __name__ == "__main__":
    run_cli(main)

"""Looks at the pipeline's runs on this machine, goes on with them and deletes them: `python pipelines/runs.py --help`."""

import argparse
import dataclasses
import pathlib
import tempfile
from collections.abc import Sequence

from pipelines import cache, history, summary
from pipelines.record import RunRecord, hold
from pipelines.run import execute
from trainer.base.errors import Parser, UserError, run_cli
from trainer.base.manifest import FILE as MANIFEST


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns 0, or of `resume` and `repeat` the exit code of the run."""
    args = _parser().parse_args(argv)
    args.runs_dir = pathlib.Path(args.runs_dir).resolve()
    return args.run(args)


def _parser() -> Parser:
    p = Parser(prog="pipelines/runs.py", description="Looks at runs, goes on with them, repeats and deletes them.")
    verbs = p.add_subparsers(required=True, metavar="VERB", parser_class=Parser)

    def verb(name: str, function: object, says: str, *, runs: str | int | None = None) -> argparse.ArgumentParser:
        own = verbs.add_parser(name, help=says, description=says)
        own.set_defaults(run=function)
        own.add_argument("--runs-dir", default="runs", help="where the runs are")
        if runs:
            own.add_argument("runs", nargs=runs, metavar="RUN", help="id of a run, or its directory")
        return own

    verb("list", _list, "the runs, the oldest first")
    verb("resume", _resume, "finish a run, whatever ended it, with the flags that it was started with", runs=1)
    verb("repeat", _repeat, "run the same again, in a directory of its own", runs=1)
    return p


def _list(args: argparse.Namespace) -> int:
    if runs := history.runs_in(args.runs_dir):
        _print_table([run.row for run in runs])
    else:
        print(f"no runs in {args.runs_dir}")
    return 0


def _print_table(rows: Sequence[dict[str, str]]) -> None:
    """Columns as wide as they have to be, under their names."""
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(map(str.ljust, line, widths)).rstrip())


def _resume(args: argparse.Namespace) -> int:
    run = history.find(args.runs[0], args.runs_dir)
    if run.status == history.RUNNING:
        raise UserError(f"{run.dir} is still running")
    hold(run.dir)
    run = history.read(run.dir)  # somebody else may have been faster
    record = run.record
    if run.summary.get("status") == history.SUCCEEDED:
        print(f"run {run.dir.name} is finished; there is nothing to go on with")
        return 0
    if record.arguments["run_dir"] != str(run.dir):
        raise UserError(f"{run.dir} was moved; move it back to {record.arguments['run_dir']} to go on with it")
    _check_source(record)
    for part in ("logs", "tmp"):
        (run.dir / part).mkdir(exist_ok=True)
    (run.dir / summary.FILE).unlink(missing_ok=True)  # that it has ended
    print(f"run {record.id} goes on: {record.dataset} on {record.cluster}", flush=True)
    return execute(record, run.dir)


def _repeat(args: argparse.Namespace) -> int:
    before = history.find(args.runs[0], args.runs_dir).record
    _check_source(before)
    facts = {field.name: getattr(before, field.name) for field in dataclasses.fields(before)}
    del facts["id"]
    record, run_dir = RunRecord.begin(args.runs_dir, **facts)
    print(f"run {record.id} repeats {before.id}: {record.dataset} on {record.cluster}", flush=True)
    return execute(record, run_dir)


def _check_source(record: RunRecord) -> None:
    """Refuses to convert anew, where the dataset is gone, what would be another one by now."""
    if (pathlib.Path(record.arguments["dataset_dir"]) / MANIFEST).exists():
        return
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as schema:
        schema.write(record.arguments["schema"])
        schema.flush()
        key = cache.cache_key(record.dataset, record.sources, schema.name if record.arguments["schema"] else None)
    if key != record.arguments["source_digest"]:
        raise UserError(
            f"run {record.id}: its dataset is gone, and the source, or the code that converts it, has changed since; start a "
            "new run with pipelines/run.py"
        )


if __name__ == "__main__":
    run_cli(main)

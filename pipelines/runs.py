"""Looks at the pipeline's runs on this machine, goes on with them and deletes them: `python pipelines/runs.py --help`."""

import argparse
import dataclasses
import functools
import pathlib
import shutil
import tempfile
from collections.abc import Sequence

from common.cli import Parser, confirm, run_cli
from common.errors import UserError
from common.flags import local
from common.manifest import FILE as MANIFEST
from components.cleanup.cleanup import num_bytes
from components.cleanup.processes import require_ended
from components.convert import store
from components.evaluate.options import Options as EvaluateOptions
from components.register.comparison import rows, table, text
from pipelines.arguments import EVALUATE_OWN, evaluation
from pipelines.local import cache, history, summary
from pipelines.local.record import RunRecord, hold
from pipelines.run import execute, of_finished


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns 0, or of `resume` the exit code of the run."""
    args = _parser().parse_args(argv)
    args.runs_dir = pathlib.Path(args.runs_dir).resolve()
    args.runs = [history.find(name, args.runs_dir) for name in getattr(args, "runs", ())]
    return args.run(args)


def _parser() -> Parser:
    p = Parser(prog="pipelines/runs.py", description="Looks at runs, goes on with them and deletes them.")
    verbs = p.add_subparsers(required=True, metavar="VERB", parser_class=functools.partial(Parser, version=False))

    def verb(name: str, function: object, says: str, *, runs: str | int | None = None) -> argparse.ArgumentParser:
        own = verbs.add_parser(name, help=says, description=says)
        own.set_defaults(run=function)
        own.add_argument("--runs-dir", type=local, default="runs", help="where the runs are")
        if runs:
            own.add_argument("runs", nargs=runs, metavar="RUN", help="id of a run, or its directory")
        return own

    verb("list", _list, "the runs, the oldest first")
    verb("show", _show, "what one was to do, and what became of it", runs=1)
    verb("compare", _compare, "metrics of two, and the settings in which they differ", runs=2)
    says = "finish a run, whatever ended it, with the flags that it was started with; those of its evaluation may be others"
    EvaluateOptions.add_flags(verb("resume", _resume, says, runs=1), but=EVALUATE_OWN, defaults=False)
    says = "delete runs; other runs and versions in the registry stay whole"
    flag = verb("delete", _delete, says, runs="*").add_argument
    flag("--datasets", action="store_true", help="delete also the datasets that no run is left to use")
    flag("--yes", action="store_true", help="without asking")
    return p


def _list(args: argparse.Namespace) -> int:
    if runs := history.runs_in(args.runs_dir):
        print(*table([list(runs[0].row), *(list(run.row.values()) for run in runs)]), sep="\n")
    else:
        print(f"no runs in {args.runs_dir}")
    return 0


def _show(args: argparse.Namespace) -> int:
    (run,) = args.runs
    groups = (
        {name: value for name, value in run.row.items() if name != "metric"} | {"reason": run.summary.get("reason")},
        {f"test {name}": text(value) for name, value in run.summary.get("metrics", {}).items()},
        {step["name"]: f"{step['status']}, {step['seconds']} s" for step in run.summary.get("steps", ())},
        run.settings,
        run.summary.get("paths", {}),
    )
    width = max(len(name) for group in groups for name in group)
    for group in groups:
        print("".join(f"{name:{width}}  {value}\n" for name, value in group.items() if value not in (None, "")))
    return 0


def _compare(args: argparse.Namespace) -> int:
    one, other = args.runs
    figures = [run.summary.get("metrics", {}) for run in args.runs]
    measured = [(f"test {name}", *values) for name, *values in rows(*figures, all_of_them=True)]
    print(*table([("", one.dir.name, other.dir.name), *measured, *rows(one.settings, other.settings)]), sep="\n")
    return 0


def _delete(args: argparse.Namespace) -> int:
    going = {run.dir: run for run in args.runs}
    places = {path.parent for path in going} or {args.runs_dir}
    left = [run for place in places for run in history.runs_in(place) if run.dir not in going]
    for run in going.values():
        require_ended(run.dir)
        if users := [other.dir.name for other in left if other.mentions(run)]:
            raise UserError(
                f"{users[0]} begins with what {run.dir.name} has learnt; delete that first, or both at once"
            )
    datasets = [path for place in places if args.datasets for path in history.unused(place, going)]
    for path in (*going, *datasets):
        print(f"{num_bytes(path) / 1e6:10.2f} MB  {path}")
    if not going and not datasets:
        print("there is nothing to delete")
    elif args.yes or confirm("delete all of this"):
        try:
            for path in going:
                shutil.rmtree(path)
            for path in datasets:
                with store.held(path):
                    if path in history.unused(path.parents[1], ()):  # a run may have begun meanwhile
                        shutil.rmtree(path)
        except OSError as error:  # of what containers wrote, for one
            raise UserError(f"{error.filename}: {error.strerror}; delete it as its owner") from None
        for place in places:
            history.write_page(place)
    return 0


def _resume(args: argparse.Namespace) -> int:
    (run,) = args.runs
    require_ended(run.dir)
    hold(run.dir)
    run = history.read(run.dir)  # somebody else may have been faster
    before = run.record.arguments["evaluate_args"]
    evaluate_args = evaluation(args, before).as_flags(but=EVALUATE_OWN)
    record = dataclasses.replace(run.record, arguments={**run.record.arguments, "evaluate_args": evaluate_args})
    if run.summary.get("status") == history.SUCCEEDED:
        if evaluate_args != before:
            raise UserError(f"run {run.dir.name} is finished; give other flags of evaluation to a new run")
        print(f"run {run.dir.name} is finished; there is nothing to go on with")
        return of_finished(record, run.summary)
    if record.arguments["run_dir"] != str(run.dir):
        raise UserError(f"{run.dir} was moved; move it back to {record.arguments['run_dir']} to go on with it")
    _check_source(record)
    (run.dir / summary.FILE).unlink(missing_ok=True)  # that it has ended
    if evaluate_args != before:
        record.save(run.dir)
        hold(run.dir)  # saving has made another file of it
    print(f"run {record.id} goes on: {record.dataset} on {record.cluster}", flush=True)
    return execute(record, run.dir)


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

"""Looks at the pipeline's runs on this machine, goes on with them and deletes them: `python pipelines/runs.py --help`."""

import argparse
import dataclasses
import functools
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from common.cli import Parser, confirm, run_cli
from common.errors import UserError, reading
from common.flags import local
from common.manifest import FILE as MANIFEST
from common.pages import table
from components.cleanup.cleanup import num_bytes, require_ended
from components.convert import store
from components.evaluate.options import Options as EvaluateOptions
from pipelines.arguments import EVALUATE_OWN, evaluation
from pipelines.config import Keys
from pipelines.local import history, record, summary
from pipelines.local.cache import cache_key
from pipelines.run import execute, of_finished

KEYS = Keys(options={EvaluateOptions: tuple(EVALUATE_OWN)}, flags=("min_accuracy", "threshold", "gate"))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns 0, or of `resume` the exit code of the run."""
    args = _parser().parse_args(argv)
    args.runs_dir = pathlib.Path(args.runs_dir).resolve()
    args.runs = [history.find(name, args.runs_dir) for name in getattr(args, "runs", ())]
    return args.verb(args) or 0


def _parser() -> Parser:
    p = Parser(prog="pipelines/runs.py", description="Looks at runs, goes on with them and deletes them.")
    verbs = p.add_subparsers(required=True, metavar="VERB", parser_class=functools.partial(Parser, version=False))

    def add(verb: Callable, description: str, *, runs: str | int | None = None) -> argparse.ArgumentParser:
        parser = verbs.add_parser(verb.__name__.strip("_"), help=description, description=description)
        parser.set_defaults(verb=verb)
        parser.add_argument("--runs-dir", type=local, default="runs", help="where the runs are")
        if runs:
            parser.add_argument("runs", nargs=runs, metavar="RUN", help="id of a run, or its directory")
        return parser

    add(_list, "the runs, the oldest first")
    add(_show, "what one was to do, and what became of it", runs=1)
    add(_compare, "metrics of two, and the settings in which they differ", runs=2)
    resume = add(
        _resume,
        "finish a run, whatever ended it, as it was started; keys of its evaluation may be others",
        runs=1,
    )
    KEYS.add_flags(resume)
    delete = add(_delete, "delete runs; other runs and versions in the registry stay whole", runs="*")
    delete.add_argument("--datasets", action="store_true", help="delete also the datasets that no run is left to use")
    delete.add_argument("--yes", action="store_true", help="without asking")
    return p


def _list(args: argparse.Namespace) -> None:
    if runs := history.list_runs(args.runs_dir):
        print(table([history.COLUMNS, *(list(run.row.values()) for run in runs)]))
    else:
        print(f"no runs in {args.runs_dir}")


def _show(args: argparse.Namespace) -> None:
    (run,) = args.runs
    with reading(run.dir / summary.FILE):
        groups = (
            {**run.row, "metric": None, "reason": run.summary.get("reason")},
            {f"test {name}": _text(value) for name, value in run.summary.get("metrics", {}).items()},
            {step["name"]: f"{step['status']}, {step['seconds']} s" for step in run.summary.get("steps", ())},
            run.settings,
            run.summary.get("paths", {}),
        )
        lines = [item for group in filter(None, groups) for item in (*group.items(), ("", " "))]
    print(table([(name, str(value)) for name, value in lines if value not in (None, "")]))


def _compare(args: argparse.Namespace) -> None:
    one, other = args.runs
    with reading(f"{summary.FILE} of {one.dir.name} or {other.dir.name}"):
        metrics = _pairs(*(run.summary.get("metrics", {}) for run in args.runs), with_equal=True)
        lines = [(f"test {name}", *values) for name, *values in metrics]
    print(table([("", one.dir.name, other.dir.name), *lines, *_pairs(one.settings, other.settings)]))


def _pairs(
    one: Mapping[str, Any], other: Mapping[str, Any], *, with_equal: bool = False
) -> Iterator[tuple[str, str, str]]:
    """Yields names with both values as texts, where these differ."""
    for name in sorted(one.keys() | other.keys()):
        if with_equal or one.get(name) != other.get(name):
            yield name, _text(one.get(name)), _text(other.get(name))


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _delete(args: argparse.Namespace) -> None:
    run_dirs = {run.dir for run in args.runs}
    places = {path.parent for path in run_dirs} or {args.runs_dir}
    others = [run for place in places for run in history.list_runs(place) if run.dir not in run_dirs]
    for run_dir in run_dirs:
        require_ended(run_dir)
        for other in others:  # one may begin with another's model, as `--init-from` has it
            if f"/{run_dir.name}/" in (other.dir / record.FILE).read_text(encoding="utf-8", errors="replace"):
                raise UserError(
                    f"{other.dir.name} begins with what {run_dir.name} has learnt; delete that first, or both at once"
                )
    datasets = [path for place in places if args.datasets for path in history.unused_datasets(place, run_dirs)]
    for path in (*sorted(run_dirs), *datasets):
        print(f"{num_bytes(path) / 1e6:10.2f} MB  {path}")
    if not run_dirs and not datasets:
        print("there is nothing to delete")
    elif args.yes or confirm("delete all of this"):
        try:
            for path in run_dirs:
                shutil.rmtree(path)
            for path in datasets:
                with store.held(path):
                    if path in history.unused_datasets(path.parents[1]):  # a run may have begun meanwhile
                        shutil.rmtree(path)
        except OSError as error:  # containers may have written as another user
            raise UserError(f"{error.filename}: {error.strerror}; delete it as its owner") from None
        for place in places:
            history.write_page(place)


def _resume(args: argparse.Namespace) -> int:
    run_dir = args.runs[0].dir
    require_ended(run_dir)
    record.lock(run_dir)
    run = history.find(run_dir, args.runs_dir)  # another process may have finished it meanwhile
    arguments = run.record.arguments
    evaluate_args = evaluation(KEYS.read(args), arguments["evaluate_args"]).as_flags(but=EVALUATE_OWN)
    has_other_keys = evaluate_args != arguments["evaluate_args"]
    if run.row["status"] == "succeeded":
        if has_other_keys:
            raise UserError(f"run {run_dir.name} is finished; give other keys of evaluation to a new run")
        print(f"run {run_dir.name} is finished; there is nothing to go on with")
        return of_finished(run.record, run.summary)
    if arguments["run_dir"] != str(run_dir):
        raise UserError(f"{run_dir} was moved; move it back to {arguments['run_dir']} to go on with it")
    has_dataset = (pathlib.Path(arguments["dataset_dir"]) / MANIFEST).exists()
    if not has_dataset and arguments["source_digest"] != cache_key(arguments["convert_args"], arguments["schema"]):
        raise UserError(
            f"run {run_dir.name}: its dataset is gone, and the source, or the code that converts it, has changed since; "
            "start a new run with pipelines/run.py"
        )
    (run_dir / summary.FILE).unlink(missing_ok=True)
    resumed = dataclasses.replace(run.record, arguments={**arguments, "evaluate_args": evaluate_args})
    if has_other_keys:
        resumed.save(run_dir)
        record.lock(run_dir)  # the file is another one now
    print(f"run {resumed.id} goes on: {resumed.dataset} on {resumed.cluster}", flush=True)
    return execute(resumed, run_dir)


if __name__ == "__main__":
    run_cli(main)

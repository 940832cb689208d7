"""Lists, shows, compares, resumes and deletes local runs: `python pipelines/runs.py --help`."""

import argparse
import dataclasses
import itertools
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from common.cli import Parser, confirm, run_cli
from common.errors import UserError, reading, unknown, writable
from common.flags import local
from common.manifest import FILE as MANIFEST
from common.pages import figure, table
from components.cleanup.cleanup import is_running, num_bytes, require_ended
from components.convert.step import locate
from components.evaluate.options import Options as EvaluateOptions
from pipelines.arguments import EVALUATE_OWN, evaluation
from pipelines.config import Keys
from pipelines.local import summary
from pipelines.local.record import FILE, RunRecord, lock, read_or_empty
from pipelines.run import execute

KEYS = Keys(
    options={EvaluateOptions: tuple(EVALUATE_OWN)}, flags=("min_accuracy", "threshold", "gate")
)
_COLUMNS = ("run", "status", "verdict", "metric", "version", "dataset", "cluster", "seconds")
_WIDEST = 60  # Most characters of a value.
_COMPARED = ("name", "cluster", "convert_args", "evaluate_args", "trainer_args", "dataset_dir")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A run, as it was when it was read.

    Attributes:
      dir: Directory of the run.
      row: Texts by `_COLUMNS`; what is not known is empty or missing.
      record: Content of its `run.json`; None if the run is broken.
      summary: Content of its `summary.json`; empty before the run has ended.
    """

    dir: pathlib.Path
    row: Mapping[str, str]
    record: RunRecord | None = None
    summary: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns 0, or for `resume` the exit code of the run.

    Args:
      argv: Arguments without the program's name; those of this process if None.

    Raises:
      UserError: If the arguments or a run that they name are wrong, or a file cannot be written.
      ConnectionError: If the source of a run to resume is in a bucket that does not answer.
    """
    args = _parser().parse_args(argv)
    args.runs_dir = pathlib.Path(args.runs_dir).resolve()
    args.runs = [find(name, args.runs_dir) for name in args.runs]
    return args.verb(args) or 0


def _parser() -> Parser:
    p = Parser(
        prog="pipelines/runs.py", description="Looks at runs, goes on with them and deletes them."
    )
    verbs = p.add_subparsers(required=True, metavar="VERB")
    for name, verb, num_runs, description in (
        ("list", _list, 0, "the runs, the oldest first"),
        ("show", _show, 1, "what one was to do, and what became of it"),
        ("compare", _show, 2, "metrics of two, and all else in which they differ"),
        (
            "resume",
            _resume,
            1,
            "finish a run, whatever ended it; keys of its evaluation may be others",
        ),
        ("delete", _delete, "+", "delete runs; datasets, and versions in the registry, stay"),
    ):
        parser = verbs.add_parser(name, help=description, description=description)
        parser.set_defaults(verb=verb, runs=())
        parser.add_argument("--runs-dir", type=local, default="runs", help="where the runs are")
        if num_runs:
            parser.add_argument(
                "runs", nargs=num_runs, metavar="RUN", help="id of a run, or its directory"
            )
        if verb is _resume:
            KEYS.add_flags(parser)
        if verb is _delete:
            parser.add_argument("--yes", action="store_true", help="without asking")
    return p


def _list(args: argparse.Namespace) -> None:
    rows = ([run.row.get(column, "") for column in _COLUMNS] for run in list_runs(args.runs_dir))
    print(table([_COLUMNS, *rows]))


def _show(args: argparse.Namespace) -> None:
    """Prints a run, or compares several.

    Of several runs, all metrics are shown, and else only what differs.
    """
    facts = [_facts(run) for run in args.runs]
    rows = [
        (name, *(_text(each.get(name)) for each in facts))
        for name in dict.fromkeys(itertools.chain(*facts))
    ]
    shown = [
        row for row in rows if len(facts) == 1 or len({*row[1:]}) > 1 or row[0].startswith("test ")
    ]
    print(table(shown))


def _facts(run: Run) -> dict[str, Any]:
    """Returns the result of a run, its metrics, and the settings that led to them, by name.

    Settings that the user left open are those that the training has chosen.

    Raises:
      UserError: If a file of the run is damaged.
    """
    assert run.record  # `find` returns no broken run.
    with reading(f"{FILE}, {summary.FILE} or job/job.json of {run.dir}"):
        metrics = {f"test {name}": value for name, value in run.summary.get("metrics", {}).items()}
        arguments = {name: run.record.arguments[name] for name in _COMPARED}
        job = read_or_empty(run.dir / "job" / "job.json")
        outcome = {**run.row, "reason": run.summary.get("reason"), **metrics}
        return {**outcome, **arguments, **job.get("settings", {}), "versions": job.get("versions")}


def _text(value: Any) -> str:
    if value in (None, ""):
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def _delete(args: argparse.Namespace) -> None:
    run_dirs = sorted({run.dir for run in args.runs})
    for run_dir in run_dirs:
        require_ended(run_dir)
        print(f"{num_bytes(run_dir) / 1e6:10.2f} MB  {run_dir}")
    if args.yes or confirm("delete all of this"):
        for run_dir in run_dirs:
            with writable(run_dir):  # Containers may have written files as another user.
                shutil.rmtree(run_dir)


def _resume(args: argparse.Namespace) -> int:
    run_dir = args.runs[0].dir
    require_ended(run_dir)
    lock(run_dir)
    run = find(run_dir, args.runs_dir)  # Another process may have finished it before the lock.
    assert run.record
    arguments = run.record.arguments
    evaluate_args = evaluation(KEYS.read(args), arguments["evaluate_args"]).as_flags(
        but=EVALUATE_OWN
    )
    if run.row["status"] == "succeeded":
        if evaluate_args != arguments["evaluate_args"]:
            raise UserError(
                f"run {run_dir.name} is finished; give other keys of evaluation to a new run"
            )
        print(f"run {run_dir.name} is finished; there is nothing to go on with")
        return 0
    if arguments["run_dir"] != str(run_dir):
        raise UserError(
            f"{run_dir} was moved; move it back to {arguments['run_dir']} to go on with it"
        )
    # A dataset that exists is used as it is. To convert again, everything has to be as before.
    dataset = pathlib.Path(arguments["dataset_dir"])
    if not (dataset / MANIFEST).exists() and str(dataset) != locate(
        str(dataset.parent), arguments["convert_args"], arguments["schema"]
    ):
        raise UserError(
            f"run {run_dir.name}: its dataset is gone, and the source, or the code that converts "
            "it, has changed since; start a new run with pipelines/run.py"
        )
    (run_dir / summary.FILE).unlink(missing_ok=True)
    resumed = dataclasses.replace(
        run.record, arguments={**arguments, "evaluate_args": evaluate_args}
    )
    resumed.save()
    lock(run_dir)  # `save` has replaced the file, and the first lock was on the old one.
    return execute(resumed)


def list_runs(runs_dir: pathlib.Path) -> list[Run]:
    """Returns the runs in a directory, sorted by their ids, so that the oldest comes first.

    They include broken ones, but not links, nor directories whose name begins with a dot.

    Raises:
      UserError: If there is no such directory.
    """
    if not runs_dir.is_dir():
        raise UserError(f"--runs-dir {runs_dir}: no such directory")
    run_dirs = sorted(path.parent for path in runs_dir.glob(f"[!.]*/{FILE}"))
    return [read(path) for path in run_dirs if not path.is_symlink()]


def find(name: str, runs_dir: pathlib.Path) -> Run:
    """Returns a run.

    Args:
      name: Id of the run in `runs_dir`, or path of its directory.
      runs_dir: Directory of the runs.

    Raises:
      UserError: If there is no such run, or if it is broken.
    """
    run_dir = next(
        (path for path in (runs_dir / name, pathlib.Path(name)) if (path / FILE).is_file()), None
    )
    if run_dir is None:
        raise unknown("run", name, [run.dir.name for run in list_runs(runs_dir)])
    run = read(run_dir.resolve())
    if run.record is None:
        raise UserError(f"{run_dir}: its {FILE} or {summary.FILE} is none of ours, or damaged")
    return run


def read(run_dir: pathlib.Path) -> Run:
    """Returns the run in a directory that has a `run.json`. Raises no error for damaged files.

    Its status is that of its summary. Without one it is `running`, or `killed` if its process ended
    without writing a summary. If `run.json` or the summary cannot be used, it is `broken`.
    """
    try:
        record = RunRecord.load(run_dir)
        result = read_or_empty(run_dir / summary.FILE)  # A resume deletes it when it starts.
        model = result.get("model", {})
        metrics = result.get("metrics", {})
        evaluation = read_or_empty(run_dir / summary.EVALUATION)
        metric = evaluation.get("metric")  # The one that models are ranked by.
        row = {
            "run": run_dir.name,
            "status": result.get("status") or ("running" if is_running(run_dir) else "killed"),
            "verdict": model.get("verdict"),
            "metric": f"{metric} {figure(metrics[metric])}" if metric in metrics else "",
            "version": model.get("version"),
            # The dataset's own name, which its schema may give; before there is one, its kind.
            "dataset": evaluation.get("dataset") or record.dataset,
            "cluster": record.cluster,
            "seconds": result.get("seconds"),
        }
        cells = {name: str(cell or "") for name, cell in row.items()}
        return Run(dir=run_dir, row=cells, record=record, summary=result)
    except (OSError, ValueError, TypeError, AttributeError):
        return Run(dir=run_dir, row={"run": run_dir.name, "status": "broken"})


if __name__ == "__main__":
    run_cli(main)

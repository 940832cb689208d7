"""Runs a study: one job in several variants, each repeated, laid side by side: `python pipelines/study.py --help`.

Its directory has the dataset, a job directory for each cell and repeat, and what was found: `study.html`, `.md`, `.csv`.
The same command goes on after an interruption: what is finished stays, what is not resumes.
"""

import argparse
import itertools
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from components.convert import store
from components.convert.convert import convert
from components.train.console.command_line import BACK_ENDS
from components.train.supervision.signals import STOPPING
from pipelines.studying import report
from pipelines.studying.figures import EVALUATION, measured
from pipelines.studying.study_file import Study, load, settle
from trainer.base.errors import Parser, UserError, run_cli, writable
from trainer.base.flags import at_least, job_directory, local
from trainer.base.lifeline import OWNER_PID
from trainer.base.locks import locked
from trainer.base.manifest import Manifest

_TOLD = "{cell}-{repeat}: {time_s:.1f} s, {examples_per_s} examples/s, {metric} {score:.4f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns 0, the exit code of a job that failed, or 128+n on signal n."""
    words = sys.argv[1:] if argv is None else [*argv]
    end = words.index("--") if "--" in words else len(words)
    args = _parser().parse_args(words[:end])
    args.more = words[end + 1 :]
    study = load(args.study)
    directory = pathlib.Path(args.output or f"jobs/{pathlib.Path(args.study).stem}").resolve()

    def refuse() -> None:
        raise UserError(f"{directory}: a study runs there already; wait for it, or use another --output")

    with writable(f"--output {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory, refuse):
            print(f"{study.asks} Results in {directory}", flush=True)
            data = args.data_dir or str(directory / "data")
            if not (args.data_dir or store.ready(pathlib.Path(data))):
                convert(study.conversion(data, args.source))
            settle(study, directory, args.source)  # a source that cannot be read is not noted
            Manifest.load(data).split("test")  # which every model is scored on, when it is trained
            return _run(study, directory, data, args)


def _parser() -> Parser:
    p = Parser(
        prog="pipelines/study.py",
        usage="%(prog)s STUDY.yaml [options] [-- flags of components.train for every job]",
        description=__doc__.partition(": `")[0],
    )
    p.add_argument("study", metavar="STUDY.yaml", help="what to run, such as studies/workers.yaml")
    p.add_argument(
        "--output",
        type=lambda text: job_directory(local(text)),
        metavar="DIR",
        help="of the study (jobs/<name of the file> without)",
    )
    p.add_argument("--source", nargs="+", default=[], metavar="PATH", help="of the dataset (the study's own without)")
    p.add_argument("--data-dir", metavar="DIR", help="the dataset, if it is converted already")
    p.add_argument("--job-dirs", metavar="PLACE", help="where those go, such as gs://BUCKET/NAME (--output without)")
    p.add_argument("--repeats", type=at_least(1, 100), help="of each cell (what the file says without)")
    p.add_argument("--backend", choices=BACK_ENDS, default="process", help="what jobs run on")
    return p


def _run(study: Study, directory: pathlib.Path, data: str, args: argparse.Namespace) -> int:
    """Runs the cells in turn, repeat after repeat, and writes after each what is known by then."""
    mtbf_hours = {cell.name: study.trained(cell)[1].mtbf_hours for cell in study.cells}
    lines: list[dict[str, Any]] = []
    for repeat, cell in itertools.product(range(args.repeats or study.repeats), study.cells):
        name = f"{cell.name}-{repeat}"
        job, own = os.path.join(args.job_dirs or directory, name), directory / name
        own.mkdir(exist_ok=True)
        train = ["train", "--cluster", cell.cluster, "--backend", args.backend, *args.more, "--"]
        train += [*study.flags(cell, repeat), "--data-dir", data, "--job-dir", job]
        evaluate = ["evaluate", "--model-dir", f"{job}/model", "--data-dir", data, "--output", str(own / EVALUATION)]
        if not measured(job, own) and (code := _step(train, own) or _step(evaluate, own)):
            return code
        place = job if args.job_dirs else name
        lines.append({"cell": cell.name, "repeat": repeat, "job_dir": place, **measured(job, own)})
        print(_TOLD.format(**lines[-1]), flush=True)
        text = report.write(directory, study.asks, lines, mtbf_hours)
    print(f"\n{text}\n{directory / report.PAGE}")
    return 0


def _step(words: Sequence[str], place: pathlib.Path) -> int:
    """Runs a step of the pipeline as a process that ends with this one, its words in a log. Returns its exit code."""
    log, told = place / f"{words[0]}.log", []
    with log.open("ab") as file:
        child = subprocess.Popen(
            [sys.executable, "-m", f"components.{words[0]}", *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this process, which has the training save, once
            env={**os.environ, OWNER_PID: str(os.getpid())},
        )

    def stop(number: int, _frame: object) -> None:
        told.append(128 + number)
        child.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, stop) for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN}
    code = child.wait()
    for number, handler in before.items():
        signal.signal(number, handler)
    if code:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-12:]
        told.append(code if code > 0 else 128 - code)
        lines = [f"{place.name}: {words[0]} ended with exit code {told[-1]}; {log} ends:", *tail]
        print("\n  ".join(lines) + "\nthe same command goes on with the study", file=sys.stderr)
    return told[0] if told else 0


if __name__ == "__main__":
    run_cli(main)

"""Searches for good settings, or compares some: `python pipelines/tune.py --help`.

Every trial of a study is a training. The directory of the study has a job directory and a log of
each, and `study.html`, `study.md` and `study.csv`. The same command continues a study that was
stopped or killed.
"""

import pathlib
import shlex
from collections.abc import Sequence

from common.cli import Parser, run_cli
from common.errors import UserError, writable
from common.flags import at_least, job_directory, local
from common.locks import locked
from components.train.__main__ import BACKENDS
from pipelines import run, submit
from pipelines.tuning import study_file
from pipelines.tuning.search import KEYS, Search

# Keys of a study that are flags too.
_COUNTS = {"repeats": "trainings of each combination", "parallel": "trainings at a time"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit code.

    It is 0 if the study is done, 128 + n after signal n, and else that of a training which failed
    for a reason that has nothing to do with its settings, such as a full disk. With `--then
    register` it is that of the run which registers the model.

    Args:
      argv: Arguments without the program's name; those of this process if None.

    Raises:
      UserError: If the study file, a key or the source is wrong, another process works on the
        study, or no training succeeds.
      ConnectionError: If a store does not answer.
    """
    args = _parser().parse_args(argv)
    study = study_file.load(args.study)
    overrides = KEYS.read(args).model_dump(exclude_unset=True)
    counts = {name: vars(args)[name] or getattr(study, name) for name in _COUNTS}
    study = study.model_copy(update={**counts, "run": {**study.run, **overrides}})
    directory = pathlib.Path(args.output or f"jobs/{pathlib.Path(args.study).stem}").resolve()

    def refuse() -> None:
        raise UserError(f"{directory}: a study is running there; wait for it, or give --output")

    if (directory / "job.json").exists():
        raise UserError(f"{directory}: a training job has this directory; give --output")
    search = Search(study, directory, args.backend, shlex.split(args.train_flags))
    with writable(f"--output {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory, refuse):
            if code := search.run():
                return code
    if not args.then:
        return 0
    if args.backend == "vertex":
        return submit.main([f"--config={search.best_file}", "--yes", "--wait"])
    return run.main([f"--config={search.best_file}"])


def _parser() -> Parser:
    p = Parser(
        prog="pipelines/tune.py",
        usage="%(prog)s STUDY.yaml [options]",
        description="Trains with settings that vary, and compares what that takes and reaches. The "
        "same command continues a study that was stopped.",
    )
    p.add_argument("study", metavar="STUDY.yaml", help="what varies, such as studies/workers.yaml")
    p.add_argument(
        "--output",
        type=lambda text: job_directory(local(text)),
        metavar="DIR",
        help="directory of the study (default: jobs/<name of the file>)",
    )
    for name, what in _COUNTS.items():
        p.add_argument(
            f"--{name}", type=at_least(1), metavar="N", help=f"{what} (as the file says)"
        )
    p.add_argument(
        "--backend",
        choices=tuple(BACKENDS),
        default="process",
        help="what trainings run on, as of components.train",
    )
    p.add_argument(
        "--train-flags",
        default="",
        metavar="FLAGS",
        help="further flags of components.train for all trainings, such as '--hosts FILE'",
    )
    p.add_argument(
        "--then",
        choices=("register",),
        help="register: evaluate the best model on the test split, and register it if it earns it",
    )
    KEYS.add_flags(p)
    return p


if __name__ == "__main__":
    run_cli(main)

"""Searches for good settings, or compares some: `python pipelines/tune.py --help`.

Every trial of a study is a training. The directory of the study has a job directory and a log of
each, and `study.html`, `study.md` and `study.csv`. The same command continues a study that was
stopped or killed.
"""

import pathlib
from collections.abc import Sequence

from common.cli import Parser, run_cli, split_words
from common.errors import UserError, writable
from common.flags import at_least, job_directory, local
from components.train.supervision.lock import locked
from pipelines import run, submit
from pipelines.tuning import study_file
from pipelines.tuning.search import KEYS, Search


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit code.

    It is 0 if the study is done; 128 + n after signal n, or if signal n stopped a training; and 75
    if Vertex AI has no machines. With `--then register` it is that of the run which registers the
    model.

    Args:
      argv: Arguments without the program's name; those of this process if None.

    Raises:
      UserError: If the study file, a key or the source is wrong, the directory has another study or
        a training, another process works on the study, several trials fail one after the other, or
        none succeeds.
      ConnectionError: If a store does not answer.
    """
    args = _parser().parse_args(argv)
    study = study_file.load(args.study)
    keys = study.run | KEYS.read(args).model_dump(exclude_unset=True)
    study = study.model_copy(update={"run": keys, "repeats": args.repeats or study.repeats})
    directory = pathlib.Path(args.output or f"jobs/{pathlib.Path(args.study).stem}").resolve()
    if (directory / "job.json").exists():
        raise UserError(f"{directory}: a training job has this directory; give --output")
    search = Search(study, directory, args.backend, split_words("--train-flags", args.train_flags))
    with writable(f"--output {directory}"), locked(str(directory)):
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
    p.add_argument(
        "--repeats",
        type=at_least(1),
        metavar="N",
        help="trainings of each combination (default: as the file says)",
    )
    p.add_argument(
        "--backend",
        choices=("process", "docker", "ssh", "vertex"),
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

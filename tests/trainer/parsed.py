"""Options of a command line of the trainer."""

from trainer.options import Options, parse


def options(flags: str = "", **environ: str) -> Options:
    """Returns the options of these flags, with required ones added."""
    return parse(f"--data-dir d --job-dir j --train-steps 10 {flags}".split(), environ)

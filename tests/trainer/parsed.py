"""Options of a command line of the trainer."""

from trainer.options import Options, parse


def options(flags: str = "", **environ: str) -> Options:
    """Those of these flags, with what is required unless they have it."""
    return parse(f"--data-dir d --job-dir j --train-steps 10 {flags}".split(), environ)

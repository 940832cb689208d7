"""Options of a command line of the trainer."""

from trainer.options import parse


def options(flags="", **environ):
    """Returns the options of these flags, with required ones added."""
    return parse(f"--data-dir d --job-dir j --train-steps 10 {flags}".split(), environ)

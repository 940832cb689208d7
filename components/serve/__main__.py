"""Serves a model over HTTP: `python -m components.serve --help`."""

from collections.abc import Sequence

from common import lifeline
from common.cli import run_cli
from common.quiet import import_keras, without_advice
from components.serve.options import Options


def main(argv: Sequence[str] | None = None) -> int:
    options = Options.parse(
        argv,
        "components.serve",
        "Answers TensorFlow Serving's REST requests and those of the V2 protocol "
        "until SIGTERM or Ctrl-C.",
    )
    lifeline.follow_owner()
    with without_advice():
        import_keras()
        from components.serve.server import serve
    serve(options)
    return 0


if __name__ == "__main__":
    run_cli(main)

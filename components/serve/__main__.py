"""Serves a model over HTTP: `python -m components.serve --help`."""

import os
import signal
import socket
from collections.abc import Sequence

from common import lifeline
from common.cli import Parser, run_cli
from common.errors import UserError
from common.quiet import import_keras, without_advice
from components.serve.options import Options


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="components.serve",
        description="Answers TensorFlow Serving's REST requests and those of the V2 protocol "
        "until SIGTERM or Ctrl-C.",
    )
    Options.add_flags(parser)
    options = Options.of(parser.parse_args(argv))
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:  # Before the model is loaded.
        socket.create_server((options.host, options.port), family=family).close()
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        raise UserError(
            f"--port {options.port} of {options.host}: {why}; give another one"
        ) from None
    if owner := lifeline.owner_pid(os.environ):
        lifeline.watch(owner, lambda: os.kill(os.getpid(), signal.SIGKILL))
    with without_advice():
        import_keras()
        from components.serve.server import serve
    serve(options)
    return 0


if __name__ == "__main__":
    run_cli(main)

"""Imports TensorFlow without the two lines of advice that no log level turns off."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_ADVICE = re.compile(rb"absl::InitializeLog|oneDNN custom operations are on")


@contextlib.contextmanager
def without_advice() -> Iterator[None]:
    """Holds back what is written to stderr, C++ included, and then writes all of it but the advice."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            os.write(2, b"".join(line for line in held if not _ADVICE.search(line)))

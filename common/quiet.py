"""Reduces TensorFlow's own messages, and its imports, to those that are needed.

`without_advice` drops two lines of advice that no log level turns off. `import_keras` takes a
second less than a plain import, and `import_arrow` a quarter of a second. `lost_replicas` shortens
reports of dozens of lines. TF_CPP_MIN_LOG_LEVEL=0 brings back the messages of TensorFlow's runtime.
"""

import contextlib
import gc
import importlib.abc
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator

# Packages that Keras imports, where installed, for functions that training does not call.
_EXTRAS = {"matplotlib", "pandas", "sklearn"}
_ADVICE = re.compile(rb"absl::InitializeLog|oneDNN custom operations are on")


@contextlib.contextmanager
def without_advice(*, peers: bool = False) -> Iterator[None]:
    """Context manager that holds back stderr, C++ included, and writes it at the end of the block.

    Two lines of advice by TensorFlow are left out: on `absl::InitializeLog`, and on oneDNN. It also
    sets the environment variable `TF_CPP_MIN_LOG_LEVEL`, unless it is set, so that TensorFlow's
    runtime logs errors alone from then on.

    Args:
      peers: Shows only fatal errors of the runtime from then on. For a replica among others: the
        runtime reports the end of another one many times, and each operation that fails because of
        it raises an exception anyway.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3" if peers else "2")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as messages:
        os.dup2(messages.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            messages.seek(0)
            os.write(2, b"".join(line for line in messages if not _ADVICE.search(line)))


def import_keras() -> None:
    """Imports Keras and TensorFlow without matplotlib, pandas and sklearn; later these can be.

    Python's garbage collector ignores what the import creates, from now on: these objects live as
    long as the process, and scanning them again and again takes a sixth of the time.
    """
    hidden = _EXTRAS.difference(sys.modules)
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None is allowed.
    gc.disable()
    import keras  # noqa: F401

    gc.freeze()
    gc.enable()
    for name in hidden:
        del sys.modules[name]


def import_arrow() -> None:
    """Imports Arrow, and keeps it from importing pandas, which can be imported later."""
    import pyarrow

    class Hidden(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name == "pandas":
                raise ModuleNotFoundError(name)

    sys.meta_path.insert(0, hidden := Hidden())
    pyarrow.array([])
    sys.meta_path.remove(hidden)


def lost_replicas() -> None:
    """Shortens TensorFlow's reports of lost replicas to one line each, for the rest of the process.

    Every message of the logger `tensorflow` is cut to its first line. Its reports of functions that
    failed on a worker, and TensorFlow's errors in destructors, are dropped.
    """

    def cut(record: logging.LogRecord) -> bool:
        record.msg, record.args = record.getMessage().split("\n", 1)[0], ()
        return not record.msg.startswith("Remote function on worker")

    # The type exists for type checkers only, so it is quoted.
    def hook(error: "sys.UnraisableHookArgs") -> None:
        if not error.exc_type.__module__.startswith("tensorflow."):
            sys.__unraisablehook__(error)

    logging.getLogger("tensorflow").addFilter(cut)
    sys.unraisablehook = hook

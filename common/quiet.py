"""Keeps TensorFlow's own messages, and what it imports, down to what is needed.

`without_advice` imports it without the two lines of advice that no log level turns off;
`import_keras` takes a second less than an import does, and `import_arrow` a quarter of one;
`lost_replicas` cuts reports that run over dozens of lines. TF_CPP_MIN_LOG_LEVEL=0 brings back what
its runtime has to say.
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

# What Keras imports, if it is installed, for functions that training does not call.
_EXTRAS = {"matplotlib", "pandas", "sklearn"}
_ADVICE = re.compile(rb"absl::InitializeLog|oneDNN custom operations are on")


@contextlib.contextmanager
def without_advice(*, peers: bool = False) -> Iterator[None]:
    """Holds back what is written to stderr, C++ included, and then writes all of it but the advice.

    With `peers`, only fatal errors of the runtime are shown from then on: it reports the end of
    another replica many times, and each operation that fails of it raises an exception anyway.
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
    """Imports Keras and TensorFlow, which find none of `_EXTRAS`; afterwards these can be imported.

    Python's garbage collector passes over what they create, now and later: these objects live as
    long as the process, and to look through them again and again takes a sixth of the time.
    """
    hidden = _EXTRAS.difference(sys.modules)
    sys.modules.update(dict.fromkeys(hidden))
    gc.disable()
    import keras  # noqa: F401

    gc.freeze()
    gc.enable()
    for name in hidden:
        del sys.modules[name]


def import_arrow() -> None:
    """Imports Arrow, which looks once for pandas and finds none; afterwards that can be imported."""
    import pyarrow

    class Hidden(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name == "pandas":
                raise ModuleNotFoundError(name)

    sys.meta_path.insert(0, hidden := Hidden())
    pyarrow.array([])
    sys.meta_path.remove(hidden)


def lost_replicas() -> None:
    """Cuts TensorFlow's reports of a lost replica to a line each: every function that fails of it is reported too."""

    def cut(record: logging.LogRecord) -> bool:
        record.msg, record.args = record.getMessage().split("\n", 1)[0], ()
        return not record.msg.startswith("Remote function on worker")

    def hook(error: "sys.UnraisableHookArgs") -> None:  # a name for type checkers only
        if not error.exc_type.__module__.startswith(
            "tensorflow."
        ):  # of a destructor that cannot reach the replica
            sys.__unraisablehook__(error)

    logging.getLogger("tensorflow").addFilter(cut)
    sys.unraisablehook = hook

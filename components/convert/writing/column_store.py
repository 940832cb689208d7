"""Where the columns of a source are kept: in memory while they fit into a budget, beyond it in files.

    store = Store(budget_bytes=10**9, directory=output)
    pixels = store.empty((60_000, 28, 28), "train-images.gz")     # of a size that is known
    column = store.column(np.float32)                             # of a length that shows
    column.append(block)
    fares = column.finish()

All of them are NumPy arrays. The files have no names, so that they are gone when the process is, however it ends.
"""

from __future__ import annotations

import contextlib
import io
import math
import mmap
import os
import pathlib
import shutil
import tempfile
from collections.abc import Sequence
from typing import IO

import numpy as np

from components.convert.writing.byte_strings import Strings
from components.convert.writing.output import writable
from trainer.base.errors import UserError


class Store:
    """Sets room aside: in memory up to half of a budget, then in unnamed files in a directory.

    The rest is left for passing work on the columns.
    """

    def __init__(self, *, budget_bytes: float = math.inf, directory: pathlib.Path | None = None):
        self._left, self.directory = budget_bytes / 2, directory

    def take(self, num_bytes: int) -> bool:
        """Whether so many bytes are left of the budget; if so, they no longer are."""
        if fits := num_bytes <= self._left:
            self._left -= num_bytes
        return fits

    def give_back(self, num_bytes: int) -> None:
        """Returns bytes that were taken."""
        self._left += num_bytes

    def empty(self, shape: Sequence[int], place: object) -> np.ndarray:
        """A uint8 array of that shape, to be filled.

        Raises:
          UserError: If it fits neither the budget nor the disk; it names the place that the bytes come from.
        """
        if self.take(size := math.prod(shape)):
            return np.empty(shape, np.uint8)
        if size > (free := shutil.disk_usage(self.directory).free):
            raise UserError(
                f"{place}: unpacks to {size:,} bytes, which are more than fit into memory, and {self.directory} has "
                f"{free:,} bytes free"
            )
        with writable(self.directory), self.file() as file:
            with contextlib.suppress(AttributeError):  # not on macOS
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk shows here and not as a signal later
            return np.asarray(np.memmap(file, np.uint8, "w+", shape=tuple(shape)))

    def shared(self, shape: Sequence[int]) -> np.ndarray | None:
        """A uint8 array of that shape, all zero, that forked processes fill together; None if it does not fit."""
        if not self.take(size := math.prod(shape)):
            return None
        return np.frombuffer(mmap.mmap(-1, size), np.uint8).reshape(shape)

    def map(self, path: pathlib.Path, shape: Sequence[int], *, offset: int) -> np.ndarray:
        """The uint8 array of that shape at an offset in a file: read if it fits the budget, else read as it is used."""
        if self.take(size := math.prod(shape)):
            return np.fromfile(path, np.uint8, size, offset=offset).reshape(shape)
        return np.asarray(np.memmap(path, np.uint8, "r", offset, tuple(shape)))

    def column(self, dtype: np.typing.DTypeLike) -> Growing | GrowingTexts:
        """An empty column of values of that type; `string` is of byte strings."""
        return GrowingTexts(self) if dtype == "string" else Growing(self, np.dtype(dtype))

    def file(self) -> IO[bytes]:
        """A file without a name; where it is written, `writable` is to be around."""
        return tempfile.TemporaryFile(dir=self.directory)


class Growing:
    """A column that values are appended to."""

    def __init__(self, store: Store, dtype: np.dtype):
        self._store, self._dtype = store, dtype
        self._file: IO[bytes] = io.BytesIO()

    def append(self, values: np.ndarray) -> None:
        """Appends values [N]."""
        values = np.ascontiguousarray(values, self._dtype)
        with writable(self._store.directory):
            if isinstance(self._file, io.BytesIO) and not self._store.take(values.nbytes):
                held, self._file = self._file, self._store.file()
                self._file.write(held.getbuffer())
                self._store.give_back(held.tell())
            self._file.write(values)

    def finish(self) -> np.ndarray:
        """The whole column; nothing can be appended any more."""
        if isinstance(self._file, io.BytesIO):
            return np.frombuffer(self._file.getbuffer(), self._dtype)
        with writable(self._store.directory), self._file as file:
            file.flush()
            return np.asarray(np.memmap(file, self._dtype, "r")) if file.tell() else np.empty(0, self._dtype)


class GrowingTexts:
    """A column of byte strings that others are appended to."""

    def __init__(self, store: Store):
        self._data = store.column(np.uint8)
        self._offsets, self._lengths = store.column(np.int64), store.column(np.int64)
        self._offsets.append(np.zeros(1))
        self._end = 0

    def append(self, values: Strings) -> None:
        """Appends the values."""
        self._data.append(values.data)
        self._offsets.append(values.offsets[1:] + self._end)
        self._lengths.append(values.lengths)
        self._end += len(values.data)

    def finish(self) -> Strings:
        """The whole column; nothing can be appended any more."""
        return Strings(data=self._data.finish(), offsets=self._offsets.finish(), lengths=self._lengths.finish())


MEMORY = Store()

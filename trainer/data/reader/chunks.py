"""Records for the order's indices, from files too large for memory: mapped, or read chunk by chunk ahead of their use.

chunks = Chunks(shards, order, fetch=Mapping(shards.paths))
records = chunks.take(indices, position=128 * step)

Which chunks come next follows from the order, so they are fetched before a batch asks for them: local files by the
system's read-ahead, an object store by several reads at once. No small record is ever read alone.
"""

import concurrent.futures
import threading

import numpy as np

from trainer.data.reader.order import Order, Window
from trainer.data.reader.shards import Block, Fetch, Shards, take

_READS_AT_ONCE = 8
_CLOSE = 8  # less than this part of a chunk is read in vain rather than that a store is asked again


class Chunks:
    """The chunks of the window that training is in, and of what comes next."""

    def __init__(self, shards: Shards, order: Order, *, fetch: Fetch, ahead: int | None = None) -> None:
        """Args: so many chunks are fetched `ahead` of the window; None for as many as it has."""
        self._shards, self._order, self._fetch = shards, order, fetch
        self._ahead = order.window if ahead is None else ahead
        self._pool = concurrent.futures.ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="reader")
        self._lock = threading.Lock()
        self._span = Window(0, 0, range(0))
        self._held: dict[range, concurrent.futures.Future[list[Block]]] = {}
        self._share: tuple[int, int, int] | None = None
        self._blocks: list[Block] = []

    def take(self, indices: np.ndarray, position: int) -> np.ndarray:
        """The records at `indices` [N], in the form of `shards.take`.

        They are what the order has at `position`, counted from the first epoch on, and the N - 1 positions after it.
        """
        with self._lock:
            if not self._span.start <= position <= position + len(indices) <= self._span.end:
                self._move(position, position + len(indices))
            return take(self._shards, self._blocks, indices)

    def share(self, first: int, end: int, global_batch: int) -> None:
        """Tells that the examples `first` to `end` of each global batch are all that will be asked for.

        Where records are so large that most of a chunk is then not needed, the rest of it is left out; not of a split so
        small that it is held from one epoch to the next.
        """
        if self._order.windows > 2 and _CLOSE * global_batch > self._order.chunk * (end - first):
            self._share = first, end, global_batch
            self._pool = concurrent.futures.ThreadPoolExecutor(4 * _READS_AT_ONCE, thread_name_prefix="reader")

    def _move(self, start: int, end: int) -> None:
        """Holds the windows of all positions from `start` to `end`, lets go of what is behind, and reads ahead."""
        window = span = self._order.window_at(start)
        needed = self._runs(window)
        while window.end < end:
            window = self._order.window_at(window.end)
            needed += self._runs(window)
            span = Window(span.start, window.end, range(span.places.start, window.places.stop))
        wanted, room = list(needed), self._ahead * self._order.chunk
        for run in self._runs(self._order.window_at(window.end)):
            if room > 0:
                wanted.append(run)
                room -= len(run)
        self._blocks = []  # before more is read: both together would not fit
        self._held = {run: self._held[run] for run in self._held.keys() & set(wanted)}
        for run in wanted:
            if run not in self._held:
                self._held[run] = self._pool.submit(self._read, run)
        stop = 0
        for run in sorted(needed, key=lambda run: (run.start, -run.stop)):
            if run.stop > stop:  # else it lies within another one, of another epoch
                self._blocks += self._held[run].result()
                stop = run.stop
        self._span = span

    def _runs(self, window: Window) -> list[range]:
        """The records that are read in one piece each, for one window: a chunk's, or what of them lies close together."""
        size = self._order.chunk
        if not self._share:
            chunks = self._order.chunks_at(window.places)
            return [range(chunk * size, min(chunk * size + size, self._order.examples)) for chunk in chunks]
        first, end, global_batch = self._share
        places = np.arange(window.start, window.end) % global_batch
        indices = self._order(0, global_batch=0, first=window.start, count=len(places)).numpy()
        ours = np.sort(indices[(first <= places) & (places < end)])
        apart = (np.diff(ours) > 1 + size // _CLOSE) | (np.diff(ours // size) > 0)
        return [range(run[0], run[-1] + 1) for run in np.split(ours, np.flatnonzero(apart) + 1) if len(run)]

    def _read(self, run: range) -> list[Block]:
        return [self._shards.block(*piece, self._fetch) for piece in self._shards.pieces(run.start, run.stop)]

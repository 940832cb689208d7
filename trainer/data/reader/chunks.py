"""Records for the order's indices, from files too large for memory: mapped, or read chunk by chunk ahead of their use.

chunks = Chunks(shards, order, fetch=Mapping(shards.paths))
records = chunks.take(indices, position=128 * step)

Which chunks come next follows from the order, so they are fetched before a batch asks for them: local files by the
system's read-ahead, an object store by several reads at once. No record is ever read alone.
"""

import concurrent.futures
import threading

import numpy as np

from trainer.data.reader.order import Order, Window
from trainer.data.reader.shards import Block, Fetch, Shards, take

_READS_AT_ONCE = 8


class Chunks:
    """The chunks of the window that training is in, and of what comes next."""

    def __init__(self, shards: Shards, order: Order, *, fetch: Fetch, ahead: int | None = None) -> None:
        """Args: so many chunks are fetched `ahead` of the window; None for as many as it has."""
        self._shards, self._order, self._fetch = shards, order, fetch
        self._ahead = order.window if ahead is None else ahead
        self._pool = concurrent.futures.ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="reader")
        self._lock = threading.Lock()
        self._span = Window(0, 0, range(0))
        self._held: dict[int, concurrent.futures.Future[list[Block]]] = {}
        self._blocks: list[Block] = []

    def take(self, indices: np.ndarray, position: int) -> np.ndarray:
        """The records at `indices` [N], in the form of `shards.take`.

        They are what the order has at `position`, counted from the first epoch on, and the N - 1 positions after it.
        """
        with self._lock:
            if not self._span.start <= position <= position + len(indices) <= self._span.end:
                self._move(position, position + len(indices))
            return take(self._shards, self._blocks, indices)

    def _move(self, start: int, end: int) -> None:
        """Holds the windows of all positions from `start` to `end`, lets go of what is behind, and reads ahead."""
        window = span = self._order.window_at(start)
        while window.end < end:
            window = self._order.window_at(window.end)
            span = Window(span.start, window.end, range(span.places.start, window.places.stop))
        wanted = self._order.chunks_at(range(span.places.start, span.places.stop + self._ahead))
        needed = sorted(set(wanted[: len(span.places)]))
        self._blocks = []  # before more is read: both together would not fit
        self._held = {chunk: self._held[chunk] for chunk in self._held.keys() & set(wanted)}
        for chunk in wanted:
            if chunk not in self._held:
                self._held[chunk] = self._pool.submit(self._read, chunk)
        self._blocks = [block for chunk in needed for block in self._held[chunk].result()]
        self._span = span

    def _read(self, chunk: int) -> list[Block]:
        start = chunk * self._order.chunk
        pieces = self._shards.pieces(start, min(start + self._order.chunk, self._order.examples))
        return [self._shards.block(*piece, self._fetch) for piece in pieces]

"""The machine's memory, which a source has to fit into."""

from __future__ import annotations

import os

from trainer.errors import UserError


def require(num_bytes: int, place: object) -> None:
    """Checks that the machine has so many bytes, before they are asked for.

    Raises:
      UserError: If it has not; it names the place.
    """
    if num_bytes > (memory := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
        raise UserError(f"{place}: needs {num_bytes} bytes of memory, and this machine has {memory}")

"""Asks whoever sits at the terminal before something is done that cannot be undone, or that costs."""

import sys

from trainer.base.errors import UserError


def agreed(what: str) -> bool:
    """Whether a person wants it: `delete all of this`. Where nobody can be asked that is a `UserError`, mended by --yes."""
    if not sys.stdin.isatty():
        raise UserError(f"nobody can be asked here whether to {what}; add --yes")
    return input(f"{what}? [y/N] ").strip().lower() in ("y", "yes")

"""Every flag times everything that could heed it: it is taken there, or refused."""

import itertools
import re

import pytest
from train_settings import GIVEN

from common.errors import UserError
from components.train.command_line import BACKENDS, INSTEAD, modes, parse, parser

MODES = (*BACKENDS, *INSTEAD)
HEEDED_BY = {"flags" if name == "flags" else f"--{name.replace('_', '-')}": by for name, by in modes().items()}
# Falsy ones too: they are given.
VALUES = {"--max-restarts": "0", "--code": "", "--strategy": "multi_worker_mirrored"}
VALUES |= {"--backend": "process", "--region": "us-central1", "--max-machine-hours": "5", "--grace-period-s": "60"}
VALUES |= {f"--{name.replace('_', '-')}": v[0] if isinstance(v, tuple) else v for name, v in GIVEN.items()}
FLAGS = [flag for flag in HEEDED_BY if flag.removeprefix("--") not in INSTEAD]


def typed(flag: str) -> list[str]:
    """The flag as typed, with some value."""
    if flag == "flags":
        return ["--", "--x"]
    has_value = flag not in ("--strict", "--dry-run")
    return [flag, VALUES.get(flag, "x")] if has_value else [flag]


def test_help_shows_every_flag():
    flags = set(re.findall(r"^  (--[a-z-]+)", parser().format_help(), re.MULTILINE))
    assert flags == {*HEEDED_BY} - {"flags"}
    assert all(set(by) <= set(MODES) and by for by in HEEDED_BY.values())


@pytest.mark.parametrize(("flag", "mode"), itertools.product(FLAGS, MODES))
def test_flag_is_refused_where_nothing_heeds_it(flag: str, mode: str):
    argv = typed(f"--{mode}") if mode in INSTEAD else ["--backend", mode]
    if flag != "--backend" or mode in INSTEAD:
        argv += typed(flag)
    if mode in HEEDED_BY[flag]:
        assert parse(argv).mode == mode
    else:
        name = flag.replace("flags", "what follows")
        with pytest.raises(UserError, match=rf"{name}.* is for .*, not for --.*{mode}; leave"):
            parse(argv)

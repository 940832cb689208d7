"""One declaration gives parser, checks and the way back."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.cli import Flags, flag, split_words
from common.flags import at_least, share
from tests.errors import user_error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    output: str = flag(str, "where to", required=True)
    count: int = flag(at_least(1), "how many", default=8)
    part: float = flag(share, "of all", default=0.1)
    kind: str | None = flag(("raw", "source"), "of what")
    paths: str | tuple[str, ...] | None = flag(str, "where from", several=True)
    quick: bool = flag(bool, "or slow", "--fast", group="speed")


text = st.text(min_size=1)
path = text.filter(lambda value: not value.startswith("-"))  # argparse takes no other in a list
OPTIONS = st.builds(
    Options,
    output=text,
    count=st.integers(1, 10**9),
    part=st.floats(0, 1, exclude_max=True),
    kind=st.sampled_from([None, "raw", "source"]),
    paths=st.none() | path | st.lists(path, min_size=2).map(tuple),
    quick=st.booleans(),
)


@settings(max_examples=settings.default.max_examples // 2)
@given(OPTIONS)
def test_flags_give_their_options_back(options):
    """The flags of any options give these options, and what is so by default is not said."""
    line = options.as_flags()
    assert Options.parse(line, "test") == options
    assert len(Options(output="x", count=8, paths=None).as_flags()) == 1


def test_repeated_flag_adds_up():
    line = ["--output=x", "--paths=a", "--paths", "b", "c"]
    assert Options.parse(line, "test").paths == ("a", "b", "c")


@given(
    st.sampled_from(["count", "part", "kind"]),
    st.integers(max_value=-1) | st.floats(max_value=-0.5) | st.just(float("nan")),
)
def test_wrong_value_is_refused_everywhere(name, value):
    """A value that the command line refuses is refused from a program too."""
    with user_error(f"--{name}") as refused:
        Options(output="x", **{name: value})
    assert str(value) in str(refused.value)
    with user_error(f"--{name}"):
        Options.parse(["--output=x", f"--{name}={value}"], "test")


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--pahts=a", "; did you mean '--paths'?"),
        ("--kind=sauce", "; did you mean 'source'?"),
    ],
)
def test_mistyped_flag_gets_suggestion(flag, hint):
    with user_error() as refused:
        Options.parse(["--output=x", flag], "test")
    assert str(refused.value).endswith(f"{hint} (see test --help)")


def test_open_quotation_is_refused():
    assert split_words("--command", "a 'b c'") == ["a", "b c"]
    with user_error('--command "a \'b": No closing quotation'):
        split_words("--command", "a 'b")

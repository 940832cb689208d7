"""The file of a study: what all its trainings have in common, and what differs.

asks: Which learning rate, and which batch size?
run: {dataset: digits, train_epochs: 10}
space:
  learning_rate: {log: [1e-4, 1e-1]}
  batch_size: [64, 128]
sampler: tpe
trials: 20

Settings are keys of `run.yaml`, and flags of the trainer without their dashes.
"""

import itertools
import pathlib
from collections.abc import Collection
from typing import Annotated, Any, Literal, Self

import pydantic
from optuna.distributions import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from common import documents
from common.cli import as_list
from common.errors import UserError, about, readable
from common.validation import Model, number

Settings = dict[str, Any]
Distribution = CategoricalDistribution | FloatDistribution | IntDistribution
CASE = "case"  # Name of the setting that chooses one of `cases`.
_MOST = 10_000


def _distribution(values: Any) -> Distribution:
    """Returns the distribution of a list of values, or of `{range: [FROM, TO]}` or `{log: ...}`.

    If both ends of a range are whole numbers, so are all its values.

    Raises:
      UserError: If it is none of these, or a range does not rise.
    """
    try:
        if isinstance(values, list) and all(isinstance(v, str | int | float) for v in values):
            return CategoricalDistribution(values)
        ((kind, ends),) = values.items()
        # YAML takes a number such as 1e-4, which has no point, for a text.
        low, high = (end if isinstance(end, int) else float(end) for end in ends)
        if kind in ("range", "log"):
            if isinstance(low, int) and isinstance(high, int):
                return IntDistribution(low, high, log=kind == "log")
            return FloatDistribution(low, high, log=kind == "log")
    except (AttributeError, TypeError, ValueError):
        pass
    raise UserError(
        f"{values!r} is none of [VALUE, ...], {{range: [FROM, TO]}} and {{log: [FROM, TO]}} with "
        "FROM less than TO"
    )


class Study(Model, use_attribute_docstrings=True, arbitrary_types_allowed=True):
    """Content of a study file."""

    asks: str
    """The question that the study answers, which is the title of its page."""
    run: Settings = pydantic.Field(default_factory=dict)
    """Settings that all trainings have in common."""
    space: dict[str, Annotated[Any, pydantic.AfterValidator(_distribution)]] = pydantic.Field(
        default_factory=dict
    )
    """Settings to vary: a list of values, `{range: [FROM, TO]}`, or `{log: [FROM, TO]}`."""
    cases: dict[str, Settings] = pydantic.Field(default_factory=dict)
    """Groups of settings that vary together, by name."""
    sampler: Literal["grid", "random", "tpe"] = "grid"
    """`grid`: all combinations; `random`; `tpe`: near those that were good."""
    trials: Annotated[int, number(1, _MOST)] | None = None
    """Number of combinations for `random` and `tpe`."""
    repeats: Annotated[int, number(1, 100)] = 1
    """Number of trainings of each combination, each with another seed."""
    metric: str | None = None
    """Metric of the validation split to compare by (default: what models are ranked by)."""
    prune: bool = False
    """Whether a training ends when it is worse than the median of the others at that step."""
    parallel: Annotated[int, number(1, 100)] = 1
    """Number of trainings at a time."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if (self.sampler == "grid") == bool(self.trials):
            raise UserError("trials is needed by sampler 'random' or 'tpe', and 'grid' has none")
        if not self.distributions:
            raise UserError("space and cases are empty; give at least one setting to vary")
        for name, each in self.space.items():
            if self.sampler == "grid" and not isinstance(each, CategoricalDistribution):
                raise UserError(f"space.{name}: a grid needs a list; or set sampler to tpe")
        return self

    @property
    def distributions(self) -> dict[str, Distribution]:
        """The distribution of each setting to vary; that of the cases is called `case`."""
        cases = {CASE: CategoricalDistribution([*self.cases])} if self.cases else {}
        return {**cases, **self.space}

    @property
    def combinations(self) -> list[Settings]:
        """All combinations of the listed values, and of the ends of ranges."""
        values = [
            each.choices if isinstance(each, CategoricalDistribution) else (each.low, each.high)
            for each in self.distributions.values()
        ]
        products = itertools.islice(itertools.product(*values), _MOST)
        return [dict(zip(self.distributions, each, strict=True)) for each in products]

    def keys(self, settings: Settings, repeat: int, known: Collection[str]) -> dict[str, Any]:
        """Returns the keys of `run.yaml` for a training.

        Args:
          settings: A value for each setting to vary.
          repeat: Number of the repeat, which is added to the seed.
          known: Keys that `run.yaml` may have. All other settings become flags of the trainer.
        """
        case = self.cases[settings[CASE]] if CASE in settings else {}
        others = {name: value for name, value in settings.items() if name != CASE}
        values = {**self.run, **case, **others}
        flags = as_list(values.pop("trainer_flags", ()))
        for name in sorted(values.keys() - {*known}):
            value = values.pop(name)
            flag = f"--{name.replace('_', '-')}"
            flags += [] if value is False else [flag if value is True else f"{flag}={value}"]
        seed = {"seed": values.get("seed", 0) + repeat} if repeat else {}
        return {**values, **seed, "trainer_flags": flags}


def load(path: str) -> Study:
    """Reads a study file.

    Raises:
      UserError: If it cannot be read, or has a mistake. The message begins with its place.
    """
    with readable(path), about(path):
        return Study.read(documents.parse_yaml(pathlib.Path(path).read_bytes()))

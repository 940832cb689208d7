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
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from common import documents
from common.cli import as_list
from common.errors import UserError, about, readable
from common.validation import Model, number
from trainer.options import Options

Settings = dict[str, Any]
CASE = "case"  # Name of the setting that chooses one of `cases`.
_MOST = 10_000


def _distribution(values: Any) -> BaseDistribution:
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
        is_log = {"range": False, "log": True}[kind]
        # The sum is whole only if both ends are.
        distribution: Any = IntDistribution if isinstance(low + high, int) else FloatDistribution
        return distribution(low, high, log=is_log)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(
            f"{values!r} is none of [VALUE, ...], {{range: [FROM, TO]}} and {{log: [FROM, TO]}} "
            "with FROM less than TO"
        ) from None


class Study(Model):
    """Content of a study file.

    Attributes:
      asks: The question that the study answers, which is the title of its page.
      run: Settings that all trainings have in common.
      space: Settings to vary: a list of values, `{range: [FROM, TO]}`, or `{log: [FROM, TO]}`, of
        which the distribution of Optuna is kept.
      cases: Groups of settings that vary together, by name.
      sampler: `grid`: all combinations; `random`; `tpe`: near those that were good.
      trials: Number of combinations for `random` and `tpe`.
      repeats: Number of trainings of each combination, each with another seed.
      metric: Metric of the validation split to compare by (default: what models are ranked by).
      prune: Whether a training ends when it is worse than the median of the others at that step.
      parallel: Number of trainings at a time.
    """

    asks: str
    run: Settings = pydantic.Field({})
    space: dict[str, Annotated[Any, pydantic.AfterValidator(_distribution)]] = pydantic.Field({})
    cases: dict[str, Settings] = pydantic.Field({})
    sampler: Literal["grid", "random", "tpe"] = "grid"
    trials: Annotated[int, number(1, _MOST)] | None = None
    repeats: Annotated[int, number(1, 100)] = 1
    metric: str | None = None
    prune: bool = False
    parallel: Annotated[int, number(1, 100)] = 1

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
    def distributions(self) -> dict[str, Any]:
        """The distribution of each setting to vary; that of the cases is called `case`."""
        cases = {CASE: CategoricalDistribution([*self.cases])} if self.cases else {}
        return {**cases, **self.space}

    @property
    def combinations(self) -> list[Settings]:
        """Combinations of the listed values and the ends of ranges; at most the first 10,000."""
        values = {
            name: each.choices
            if isinstance(each, CategoricalDistribution)
            else (each.low, each.high)
            for name, each in self.distributions.items()
        }
        products = itertools.islice(itertools.product(*values.values()), _MOST)
        return [dict(zip(values, each, strict=True)) for each in products]

    def keys(self, settings: Settings, repeat: int, known: Collection[str]) -> dict[str, Any]:
        """Returns the keys of `run.yaml` for a training.

        Args:
          settings: A value for each setting to vary.
          repeat: Number of the repeat, which is added to the seed.
          known: Keys that `run.yaml` may have. All other settings become flags of the trainer,
            which are appended to `trainer_flags`; an option of our trainer that is False is left
            out.
        """
        values = {**self.run, **self.cases.get(settings.get(CASE, ""), {}), **settings}
        values.pop(CASE, None)
        values["seed"] = values.get("seed", 0) + repeat
        flags = as_list(values.pop("trainer_flags", ()))
        for name in sorted(values.keys() - known):
            flag, value = f"--{name.replace('_', '-')}", values.pop(name)
            if name not in Options.__dataclass_fields__ or not isinstance(value, bool):
                flags.append(f"{flag}={value}")
            elif value:
                flags.append(flag)
        return {**values, "trainer_flags": flags}


def load(path: str) -> Study:
    """Reads a study file.

    Raises:
      UserError: If it cannot be read, or has a mistake. The message begins with its place.
    """
    with readable(path), about(path):
        return Study.read(documents.parse_yaml(pathlib.Path(path).read_bytes()))

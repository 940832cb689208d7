"""Options of an evaluation: flags of the command, and of the pipeline's step."""

import argparse
import contextlib
import dataclasses
import math

from common.cli import Flags, as_list, flag
from common.errors import UserError
from common.flags import zero_to_one
from components.evaluate.gate import Gate, load


def _threshold(text: str) -> str:
    """Returns a text of the form METRIC=VALUE unchanged.

    Raises:
      ArgumentTypeError: If it has another form, or if the value is not a finite number.
    """
    name, _, value = text.partition("=")
    with contextlib.suppress(ValueError):
        if name.isidentifier() and math.isfinite(float(value)):
            return text
    raise argparse.ArgumentTypeError(f"{text!r} is not METRIC=VALUE, such as rmse=1.5")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    """Arguments of an evaluation.

    After construction, `gate` is the text of the gate file and no longer its path; it stays empty
    if there is no gate file.

    Raises:
      UserError: If a value is not allowed, if there is a registry but no name, or if the gate file
        cannot be used.
    """

    model_dir: str = flag(str, "the SavedModel, <job-dir>/model", required=True, metavar="DIR")
    data_dir: str = flag(str, "a dataset made by components.convert", required=True, metavar="DIR")
    output: str = flag(str, "a directory; made when it is not there", required=True, metavar="DIR")
    split: str = flag(("test", "validation"), "to score", default="test")
    min_accuracy: float = flag(zero_to_one, "of a model worth a version", default=0.0)
    min_auc: float = flag(zero_to_one, "the same, area under the ROC curve", default=0.0)
    threshold: str | tuple[str, ...] | None = flag(
        _threshold,
        "the same of any metric, such as rmse=1.5, which is the most, or r2=0.6, which is the "
        "least",
        several=True,
        metavar="METRIC=VALUE",
    )
    gate: str = flag(
        str,
        "file that says what a model is asked for (gates/default.yaml shows it)",
        default="",
        metavar="FILE",
    )
    slice: str | tuple[str, ...] | None = flag(
        str,
        "also measure by the values of this column of a table, or by quarters of a number",
        several=True,
        metavar="COLUMN",
    )
    count_repeated: bool = flag(
        bool,
        "score records too that are equal to a training record, as in a table of few distinct rows",
    )
    registry: str = flag(str, "compare with the champion in this registry", default="")
    name: str = flag(str, "of the model in the registry", default="")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.registry and not self.name:
            raise UserError("--registry needs the --name of the model in it")
        # From here on it is the content: a file of this machine may not exist where the step runs.
        if self.gate:
            object.__setattr__(self, "gate", load(self.gate))

    @property
    def slices(self) -> list[str]:
        """Names of the columns to measure by; empty if there are none."""
        return as_list(self.slice)

    @property
    def limits(self) -> Gate:
        """The gate of the file, or the default gate, in which thresholds of flags replace its own.

        `min_accuracy` and `min_auc` set no threshold if they are 0. For one metric, `threshold`
        wins over these two, and its last value over earlier ones.

        Raises:
          UserError: If a threshold is out of its metric's range.
        """
        minima = {"accuracy": self.min_accuracy, "auc": self.min_auc}
        thresholds = {metric: least for metric, least in minima.items() if least}
        for each in as_list(self.threshold):
            metric, value = each.split("=")
            thresholds[metric] = float(value)
        return Gate.of(self.gate, thresholds)

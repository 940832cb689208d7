"""What to evaluate, and how: the flags of the command, and of the pipeline for its step, as a value."""

from __future__ import annotations

import dataclasses

from trainer.base.command_line import Flags, flag
from trainer.base.errors import UserError
from trainer.base.flags import zero_to_one


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    """Arguments of an evaluation.

    Raises:
      UserError: If a threshold is none, or a registry is given without the name of the model in it.
    """

    model_dir: str = flag(metavar="DIR", help="the SavedModel, <job-dir>/model")
    data_dir: str = flag(metavar="DIR", help="a dataset made by components.convert")
    output: str = flag(metavar="DIR", help="a directory; made when it is not there")
    split: str = flag("test", choices=("test", "validation"), help="to score")
    min_accuracy: float = flag(0.0, type=zero_to_one, metavar="X", help="of a model worth a version")
    min_auc: float = flag(0.0, type=zero_to_one, metavar="X", help="the same, area under the ROC curve of two classes")
    registry: str = flag("", help="compare with the champion in this registry")
    name: str = flag("", help="of the model in the registry")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.registry and not self.name:
            raise UserError("--registry needs the --name of the model in it")

    @property
    def thresholds(self) -> dict[str, float]:
        """Those that are not 0, by metric."""
        given = {"accuracy": self.min_accuracy, "auc": self.min_auc}
        return {metric: least for metric, least in given.items() if least}

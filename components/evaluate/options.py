"""What to evaluate, and how: the flags of the command, and of the pipeline for its step, as a value."""

import dataclasses

from trainer.base.command_line import Flags, flag
from trainer.base.errors import UserError
from trainer.base.flags import zero_to_one


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    """Arguments of an evaluation; a registry needs the name of the model in it."""

    model_dir: str = flag(str, "the SavedModel, <job-dir>/model", required=True, metavar="DIR")
    data_dir: str = flag(str, "a dataset made by components.convert", required=True, metavar="DIR")
    output: str = flag(str, "a directory; made when it is not there", required=True, metavar="DIR")
    split: str = flag(("test", "validation"), "to score", default="test")
    min_accuracy: float = flag(zero_to_one, "of a model worth a version", default=0.0)
    min_auc: float = flag(zero_to_one, "the same, area under the ROC curve of two classes", default=0.0)
    registry: str = flag(str, "compare with the champion in this registry", default="")
    name: str = flag(str, "of the model in the registry", default="")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.registry and not self.name:
            raise UserError("--registry needs the --name of the model in it")

    @property
    def thresholds(self) -> dict[str, float]:
        """Those that are not 0, by metric."""
        given = {"accuracy": self.min_accuracy, "auc": self.min_auc}
        return {metric: least for metric, least in given.items() if least}

"""What `--cluster` names, as the content of a cluster file, and what differs from what the user wrote."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from common.cli import Parser
from common.errors import UserError, about
from components.train.cluster.cluster_file import Cluster

SYNC = "--sync"


def strategy_flag(flags: Sequence[str]) -> str | None:
    """Returns the strategy that the trainer's flags name, if they do."""
    parser = Parser(prog="python -m trainer.task", add_help=False)
    parser.add_argument("--strategy")
    return parser.parse_known_args(list(flags))[0].strategy


@dataclasses.dataclass(kw_only=True)
class Source:
    """A cluster before it is checked, and what else its file says."""

    name: str  # Path or scale tier, as the user gave it.
    values: Any = None  # The content of a cluster file, unchecked.
    notes: list[str] = dataclasses.field(default_factory=list)  # What was translated or has no effect.
    # Where other machines, or fewer, run than the file says, or something that it demands is left out.
    replacements: list[str] = dataclasses.field(default_factory=list)
    region: str | None = None
    args: tuple[str, ...] = ()  # Flags of the trainer.
    job_dir: str | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster, checked."""
        with about(self.name):
            return Cluster.read(self.values)

    def choose_strategy(self, flags: Sequence[str], override: str | None) -> None:
        """Sets the strategy, which the file may leave open.

        TensorFlow 2 has no synchronous training with parameter servers. If that is required, the workers reduce gradients
        among themselves, which computes the same update, and the parameter servers are dropped, with a note.

        Args:
          flags: The trainer's, of which `--sync` counts.
          override: Overrides the file.

        Raises:
          UserError: If the flags contradict each other.
        """
        from_file = self.values.get("strategy")
        chosen = override or from_file
        if chosen == "parameter_server" and SYNC in flags:
            if override:
                raise UserError(
                    "--sync: parameter servers train asynchronously in TensorFlow 2; leave one of the two out"
                )
            chosen = "multi_worker_mirrored"
        if chosen:
            self.values["strategy"] = chosen
        if from_file == "parameter_server" != chosen:
            self.values.pop("ps", None)
            self.replacements.append(
                f"{SYNC if SYNC in flags else '--strategy'}: the parameter servers are dropped: synchronous workers reduce "
                "gradients among themselves, which computes the same update"
            )

    def trainer_flags(self, flags: Sequence[str]) -> list[str]:
        """Returns the flags of the trainer, else those of the file, without `--sync`, which the strategy stands for."""
        if flags and self.args:
            self.notes.append("trainingInput.args: not used, as flags are given to the trainer here")
        chosen = [flag for flag in (flags or self.args) if flag != SYNC]
        if self.job_dir and not any(flag.startswith(("--job-dir", "--job_dir")) for flag in chosen):
            chosen += ["--job-dir", self.job_dir]
        return chosen

    def print_notes(self) -> None:
        """Writes each replacement and note on a line of standard error."""
        for kind, texts in (("replaced", self.replacements), ("note", self.notes)):
            for text in texts:
                print(f"{kind}: {self.name}: {text}", file=sys.stderr)

    def refuse_replacements(self) -> None:
        """Raises a UserError if anything else runs than the file says."""
        if self.replacements:
            texts = "; ".join(self.replacements)
            raise UserError(
                f"{self.name}: --strict allows no replacement: {texts}; edit the file, or leave --strict out"
            )

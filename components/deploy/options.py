"""Options of deployments, as flags of the command."""

import dataclasses
import re

from common.cli import Flags, flag
from common.flags import Kind, at_least
from components.train.backends.job_settings import account
from components.train.cluster.machines import GPUS


def _has_no_gpu(machine: str) -> bool:
    """Returns whether a text may be a machine type that is offered without GPUs."""
    is_type = re.fullmatch(r"[a-z]\d[a-z]*(-[a-z]+)+-\d+g?", machine)
    return bool(is_type) and "" in GPUS.get(machine, {"": ()})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    """Arguments of a deployment."""

    registry: str = flag(str, "vertex://PROJECT/LOCATION", required=True)
    name: str = flag(
        str,
        "of the model, and which version (none: the champion)",
        required=True,
        metavar="NAME[@ALIAS]",
    )
    traffic: int = flag(
        at_least(1, 100), "share of the requests that it gets, in percent", default=100
    )
    machine: str = flag(
        Kind(str, _has_no_gpu, "a machine type without GPUs, such as n1-standard-4", "TYPE"),
        "type of its machines",
        default="n1-standard-2",
    )
    max_replicas: int = flag(at_least(1), "most machines, by load", default=1)
    service_account: str | None = flag(account, "that it acts as (None: the project's)")

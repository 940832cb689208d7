"""Options of deployments, as flags of the command."""

import dataclasses

from common.cli import Flags, flag
from common.flags import at_least


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
    machine: str = flag(str, "type of its machines", default="n1-standard-2")
    max_replicas: int = flag(at_least(1), "most machines, by load", default=1)
    service_account: str | None = flag(str, "that it acts as (None: the project's)")

"""Options of deployments, as flags of the command."""

import dataclasses

from common.cli import flag
from common.flags import at_least
from components.predict.options import VersionOptions
from components.train.backends.job_settings import account, matching


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(VersionOptions):
    """Arguments of a deployment."""

    traffic: int = flag(
        at_least(1, 100), "share of the requests that it gets, in percent", default=100
    )
    machine: str = flag(
        matching(r"[a-z]\d[a-z]*(-[a-z]+)+-\d+g?", "a machine type, such as n1-standard-4", "TYPE"),
        "type of its machines, one without GPUs",
        default="n1-standard-2",
    )
    max_replicas: int = flag(at_least(1), "most machines, by load", default=1)
    service_account: str | None = flag(account, "that it acts as (None: the project's)")

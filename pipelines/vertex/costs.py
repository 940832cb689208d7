"""What a training job takes: machine-hours always, money where prices are known.

The price file (`make prices`, or by hand) is JSON: `region`, `date`, `currency`, and prices of an hour by machine type and
GPU, `hour`, and of Spot machines `spot_hour`. Disks and the pipeline's own steps are not counted.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any, Self

from components.train.cluster.cluster_file import Cluster
from trainer.base.errors import UserError, reading

VERTEX_TIMEOUT_S = 7 * 86_400  # of a job without a time limit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices of a region on a date."""

    region: str
    date: str
    currency: str
    hour: Mapping[str, float]
    spot_hour: Mapping[str, float] = dataclasses.field(default_factory=dict)
    source: str = ""

    @classmethod
    def load(cls, path: pathlib.Path, region: str) -> Self:
        """Reads the price file of a region; that of another is refused."""
        with reading(path, "make it again: make prices"):
            prices = cls(**json.loads(path.read_text(encoding="utf-8")))
        if prices.region != region:
            raise UserError(f"{path}: prices of {prices.region}, not {region}; make prices ARGS='--region {region}'")
        return prices

    def of_hour(self, cluster: Cluster) -> float | None:
        """Of all machines of a cluster together for an hour; None if one of them is not listed."""
        prices = self.hour if cluster.scheduling.strategy == "STANDARD" else self.spot_hour
        total = 0.0
        for pool in cluster.pools.values():
            gpus = {pool.accelerator.type: pool.accelerator.count} if pool.accelerator else {}
            for name, count in {pool.machine: 1, **gpus}.items():
                if name not in prices:
                    return None
                total += pool.replicas * count * prices[name]
        return total


def limit_s(cluster: Cluster) -> int:
    """How long a job may run."""
    return cluster.scheduling.timeout_s or VERTEX_TIMEOUT_S


def told(cluster: Cluster, prices: Prices | None, longest_s: float) -> list[str]:
    """The pools and what they take at most, a line each."""
    lines = []
    for role, pool in cluster.pools.items():
        gpus = f" with {pool.gpus} {pool.accelerator.type}" if pool.accelerator else ""
        lines.append(f"  {role:10}{pool.replicas} x {pool.machine}{gpus}")
    hours = longest_s / 3600
    bound = f"  at most {hours * cluster.replicas:,.1f} machine-hours ({cluster.replicas} machines for {hours:,.1f} h)"
    price = prices.of_hour(cluster) if prices else None
    if price is None:
        return [*lines, f"{bound}; price unknown ({'a machine is not in the price file' if prices else 'make prices'})"]
    return [*lines, f"{bound}, {price * hours:,.2f} {prices.currency} by the prices of {prices.date}"]


def bounded_s(
    cluster: Cluster, prices: Prices | None, max_machine_hours: float | None, max_price: float | None
) -> float:
    """Seconds that a job may run by its own limit and by those on machine-hours and price.

    Raises:
      UserError: If there is a limit on the price, and no price.
    """
    limits: list[Any] = [limit_s(cluster)]
    if max_machine_hours:
        limits.append(max_machine_hours * 3600 / cluster.replicas)
    if max_price:
        if not (hour := prices.of_hour(cluster) if prices else None):
            raise UserError(
                "--max-price: the price of these machines is unknown; make prices, and give it with --prices"
            )
        limits.append(max_price / hour * 3600)
    return min(limits)

"""What a training job takes: machine-hours always, money where prices are known.

The price file (`make prices`, or by hand) is JSON: `region`, `date`, `currency`, and prices of an hour by machine type and
GPU, `hour`, and of Spot machines `spot_hour`. Disks and the pipeline's own steps are not counted.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Self

from components.train.backends.vertex.attempts import Bounds
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


def bounds(cluster: Cluster, prices: Prices | None, max_machine_hours: float | None, max_price: float | None) -> Bounds:
    """What all attempts of a training may take together; a limit on the price is refused where some machines have none."""
    hours = [prices.of_hour(choice) if prices else None for choice in cluster.choices]
    if max_price and None in hours:
        raise UserError("--max-price: the price of these machines is unknown; make prices, and give it with --prices")
    return Bounds(
        choices=len(hours),
        replicas=cluster.replicas,
        max_restarts=cluster.scheduling.max_restarts,
        timeout_s=cluster.scheduling.timeout_s or VERTEX_TIMEOUT_S,
        machine_hours=max_machine_hours,
        price=max_price,
        prices_per_h=tuple(hour for hour in hours if hour is not None),
    )


def told(cluster: Cluster, prices: Prices | None, longest_s: float) -> list[str]:
    """The pools and what they take at most, a line each."""
    lines = []
    for role, pool in cluster.pools.items():
        others = (choice.pools[role].shape for choice in cluster.choices[1 : 1 + len(pool.alternatives)])
        lines.append(f"  {role:10}{pool.replicas} x {', else '.join([pool.shape, *others])}")
    hours = longest_s / 3600
    machines = f"{cluster.replicas} machine{'s' if cluster.replicas > 1 else ''}"
    bound = f"  at most {hours * cluster.replicas:,.1f} machine-hours ({machines} for {hours:,.1f} h)"
    price = max(prices.of_hour(choice) or math.inf for choice in cluster.choices) if prices else math.inf
    if price == math.inf:
        return [*lines, f"{bound}; price unknown ({'a machine is not in the price file' if prices else 'make prices'})"]
    return [*lines, f"{bound}, {price * hours:,.2f} {prices.currency} by the prices of {prices.date}"]

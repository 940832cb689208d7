import dataclasses
import json

import pytest

from components.train.backends.vertex.attempts import Again, decide
from components.train.cluster.cluster_file import Cluster
from pipelines.vertex import costs
from pipelines.vertex.costs import Prices
from trainer.base.errors import UserError

GPU = {"machine": "n1-standard-8", "accelerator": {"type": "NVIDIA_TESLA_T4", "count": 2}}
PRICES = Prices(
    region="us-central1",
    date="2026-11-01",
    currency="USD",
    hour={"n1-standard-8": 0.5, "NVIDIA_TESLA_T4": 0.25},
    spot_hour={"n1-standard-8": 0.1, "NVIDIA_TESLA_T4": 0.05},
)


def cluster(**scheduling: str) -> Cluster:
    pools = {"chief": GPU, "worker": {**GPU, "replicas": 3}}
    return Cluster(strategy="multi_worker_mirrored", **pools, scheduling=scheduling)


def test_machine_hours_and_price_are_those_of_all_replicas_for_the_longest_time(tmp_path):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(vars(PRICES)))
    hour = 4 * (0.5 + 2 * 0.25)
    assert (
        Prices.load(path, PRICES.region).of_hour(cluster()) == hour
        and PRICES.of_hour(cluster(strategy="SPOT")) == 4 * 0.2
    )
    assert costs.told(cluster(), PRICES, 7200)[-1].endswith(
        "at most 8.0 machine-hours (4 machines for 2.0 h), 8.00 USD by the prices of 2026-11-01"
    )
    limits = [costs.bounds(asked, PRICES, None, None).timeout_s for asked in (cluster(), cluster(timeout="2h"))]
    assert limits == [7 * 86_400, 7200]


def test_the_least_of_all_limits_holds():
    for hours, price, expected in ((None, None, 7200), (4.0, None, 3600), (None, 2.0, 1800), (1.0, 100.0, 900)):
        order = decide([], costs.bounds(cluster(timeout="2h"), PRICES, hours, price))
        assert isinstance(order, Again) and order.timeout_s == expected


def test_the_dearest_of_several_machines_is_the_bound():
    pool = {"machine": "n1-standard-8", "alternatives": [{"machine": "n1-standard-16"}]}
    either = Cluster(strategy="one_device", chief=pool)
    prices = dataclasses.replace(PRICES, hour={"n1-standard-8": 0.5, "n1-standard-16": 1.0})
    assert (
        "1.00 USD" in costs.told(either, prices, 3600)[-1]
        and "else n1-standard-16" in costs.told(either, prices, 60)[0]
    )
    assert costs.bounds(either, prices, None, 1.0).prices_per_h == (0.5, 1.0)


def test_a_price_that_nobody_knows_is_said_to_be_unknown_and_limits_nothing():
    n2 = Cluster(strategy="one_device", chief={"machine": "n2-standard-4"})
    assert "price unknown (make prices)" in costs.told(n2, None, 60)[-1]
    assert "price unknown (a machine is not in the price file)" in costs.told(n2, PRICES, 60)[-1]
    with pytest.raises(UserError, match="--max-price: the price of these machines is unknown"):
        costs.bounds(n2, PRICES, None, 5.0)


def test_a_file_that_has_no_prices_or_those_of_another_region_is_told(tmp_path):
    (tmp_path / "other.json").write_text(json.dumps(vars(PRICES)))
    with pytest.raises(UserError, match="prices of us-central1, not europe-west4"):
        Prices.load(tmp_path / "other.json", "europe-west4")
    (tmp_path / "prices.json").write_text("{}")
    with pytest.raises(UserError, match="make it again: make prices"):
        Prices.load(tmp_path / "prices.json", "us-central1")

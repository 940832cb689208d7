import json
import re

import pytest

from pipelines.vertex import prices
from pipelines.vertex.costs import Prices
from trainer.base.errors import UserError

HOUR = {
    "on N1 Predefined Instance Core running in Americas": 0.03,
    "on N1 Predefined Instance Ram running in Americas": 0.004,
    "Management fee on N1 Instance Core in Americas": 0.01,
    "Management fee on N1 Instance RAM in Americas": 0.001,
    "on NVIDIA Tesla T4 in Americas": 0.25,
    "on NVIDIA H100 80GB in Iowa": 11.0,
    "on C2 Instance Core running in Americas": 0.05,  # whose memory has no price
}


def sku(words: str, price: float, usage: str = "OnDemand", region: str = "us-central1") -> dict:
    unit = {"currencyCode": "USD", "units": str(int(price)), "nanos": round(price % 1 * 1e9)}
    return {
        "description": f"Vertex AI: Training/Pipelines {words}",
        "category": {"usageType": usage},
        "serviceRegions": [region],
        "pricingInfo": [{"pricingExpression": {"tieredRates": [{"unitPrice": unit}]}}],
    }


CATALOG = [
    *(sku(words, price) for words, price in HOUR.items()),
    *(sku(words, price / 2, usage="Preemptible") for words, price in HOUR.items() if "N1" in words),
    sku("on N1 Predefined Instance Core running in Europe", 9.0, region="europe-west4"),
    {
        **sku("x", 9.0),
        "description": "Vertex AI: Online/Batch Prediction N1 Predefined Instance Core running in Americas",
    },
]


def ask(url: str) -> tuple[int, dict]:
    """Three to a page."""
    start = int(re.search(r"pageToken=(\d*)", url)[1] or 0)
    more = {"nextPageToken": str(start + 3)} if start + 3 < len(CATALOG) else {}
    return 200, {"skus": CATALOG[start : start + 3], **more}


def test_a_machine_costs_what_its_parts_cost_with_their_fees(tmp_path):
    found = prices.fetch("us-central1", ask)
    assert found.hour["n1-standard-4"] == pytest.approx(4 * 0.04 + 15 * 0.005)
    assert found.spot_hour["n1-standard-4"] == pytest.approx(found.hour["n1-standard-4"] / 2)
    assert found.hour["NVIDIA_TESLA_T4"] == 0.25 and found.hour["NVIDIA_H100_80GB"] == 11.0
    assert not [name for name in found.hour if name.startswith("c2")] and "NVIDIA_TESLA_T4" not in found.spot_hour
    (tmp_path / "prices.json").write_text(json.dumps(vars(found)))
    assert Prices.load(tmp_path / "prices.json", "us-central1") == found


def test_a_list_that_cannot_be_had_is_told():
    with pytest.raises(UserError, match=r"no; gcloud services enable cloudbilling\.googleapis\.com"):
        prices.fetch("us-central1", lambda _: (403, {"error": {"message": "no"}}))
    with pytest.raises(UserError, match="nothing of training in moon"):
        prices.fetch("moon", ask)

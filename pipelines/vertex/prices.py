"""Writes the price file of a region (`costs.Prices`) from Google's public list: `python -m pipelines.vertex.prices --help`.

A machine is billed by its CPUs, its memory and its GPUs, each with a fee of Vertex AI's beside it. How the list words that
is as people have found it who compared it with their bills: "Vertex AI: Training/Pipelines on N1 Predefined Instance Core
running in Americas", "... Management fee on N1 Instance Core in ..."; that Spot machines are of usage type Preemptible there
is a guess. What is worded otherwise is left out, and then unknown.
"""

import collections
import datetime
import json
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from components.train.cluster.machines import gpu_types, offered
from pipelines.vertex.checks import Asker
from pipelines.vertex.costs import Prices
from trainer.base.errors import Parser, UserError, run_cli

_SKUS = "https://cloudbilling.googleapis.com/v1/services/C7E2-9256-1C43/skus"  # of Vertex AI
_WORDED = re.compile(
    r"Vertex AI: Training/Pipelines (?:Management fee )?on (?P<what>.+?) (?:running )?in \S.*", re.IGNORECASE
)


def fetch(region: str, ask: Callable[[str], tuple[int, Any]]) -> Prices:
    """The prices of a region; `ask` gets HTTP status and content of a URL."""
    parts: dict[bool, dict[str, float]] = {spot: collections.defaultdict(float) for spot in (False, True)}
    token, currency = "", ""
    while True:
        status, page = ask(f"{_SKUS}?pageSize=5000&currencyCode=USD&pageToken={token}")
        if status != 200:
            said = page.get("error", {}).get("message", f"HTTP status {status}")
            raise UserError(f"the price list: {said}; gcloud services enable cloudbilling.googleapis.com")
        for sku in page.get("skus", ()):
            if region in sku["serviceRegions"] and (match := _WORDED.fullmatch(sku["description"])):
                price = sku["pricingInfo"][-1]["pricingExpression"]["tieredRates"][-1]["unitPrice"]
                currency = price["currencyCode"]
                amount = int(price.get("units", 0)) + price.get("nanos", 0) / 1e9
                parts[sku["category"]["usageType"] == "Preemptible"][_part(match["what"])] += amount
        if not (token := page.get("nextPageToken", "")):
            break
    if not any(parts.values()):
        raise UserError(f"the price list has nothing of training in {region}; is that a region of Vertex AI?")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    hour, spot_hour = _machines(parts[False]), _machines(parts[True])
    return Prices(region=region, date=today, currency=currency, hour=hour, spot_hour=spot_hour, source=_SKUS)


def _part(what: str) -> str:
    """`n1 core`, `n1 ram`, or the short name of a GPU, `t4`."""
    words = [word for word in what.lower().split() if word not in ("predefined", "instance", "spot", "preemptible")]
    return " ".join(words) if words[-1] in ("core", "ram") else _short("_".join(words))


def _short(gpu: str) -> str:
    return re.sub("_gpu$", "", re.sub("^nvidia_(tesla_)?", "", gpu.lower()))


def _machines(parts: dict[str, float]) -> dict[str, float]:
    """Price of an hour of each machine type and GPU whose parts all have one."""
    found = {}
    for name, machine in offered().items():
        core, ram = parts.get(f"{machine.family} core"), parts.get(f"{machine.family} ram")
        if core and ram:
            found[name] = round(machine.vcpus * core + machine.memory_gb * ram, 6)
    return found | {gpu: round(parts[_short(gpu)], 6) for gpu in gpu_types() if parts.get(_short(gpu))}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    p = Parser(
        prog="python -m pipelines.vertex.prices", description="Writes the prices of a region, for submit.py --prices."
    )
    p.add_argument("--region", default="us-central1", help="of the machines")
    p.add_argument("--output", default="prices.json", help="file to write")
    args = p.parse_args(argv)
    prices = fetch(args.region, Asker())
    pathlib.Path(args.output).write_text(json.dumps(vars(prices), indent=1) + "\n", encoding="utf-8")
    listed = f"{len(prices.hour)} machines and GPUs, {len(prices.spot_hour)} as Spot"
    print(f"{args.output}: {listed}, in {prices.currency} of {prices.date}; look at it before you rely on it")
    return 0


if __name__ == "__main__":
    run_cli(main)

"""Writes made-up taxi trips with the columns of the Chicago data.

    python examples/make_taxi_sample.py data/taxi.csv

For a first try without a download. Gaps, payment types and the relation of tips to payment resemble
those of the real trips. Nothing in the rows is of a real trip.
"""

import argparse
import csv
import pathlib
import random
import time

COMPANIES = ["Lakeside Cabs", "Northern Taxi", "Prairie Cab Co.", "Harbor Dispatch", ""]
AREAS = {
    8: (41.90, -87.63),
    32: (41.88, -87.63),
    28: (41.87, -87.66),
    6: (41.94, -87.65),
    76: (41.98, -87.90),
}
FIRST_TIMESTAMP = 1_356_998_400  # 2013-01-01 in UTC
SECONDS = 4 * 365 * 24 * 3600


def make_trip(rng):
    """Returns one trip by column; a gap is an empty string."""
    timestamp = FIRST_TIMESTAMP + 900 * rng.randrange(SECONDS // 900)
    start = time.gmtime(timestamp)
    miles = round(rng.choice([0.0, rng.expovariate(0.4)]), 1)
    seconds = 60 * (2 + int(3 * miles + rng.expovariate(0.2)))
    fare = round(3.25 + 1.8 * miles + 0.005 * seconds, 2)
    payment_type = rng.choices(["Cash", "Credit Card", "No Charge", "Unknown"], [66, 32, 1, 1])[0]
    # Who pays by card tips, more generously after a short trip; what is given in cash is not
    # recorded.
    tip_share = (
        max(0.0, rng.gauss(0.3 - 0.03 * miles, 0.05)) if payment_type == "Credit Card" else 0.0
    )
    pickup, dropoff = rng.choices(list(AREAS), [40, 26, 12, 12, 10], k=2)
    has_dropoff = rng.random() < 0.97
    return {
        "pickup_community_area": pickup,
        "fare": fare,
        "trip_start_month": start.tm_mon,
        "trip_start_hour": start.tm_hour,
        "trip_start_day": (start.tm_wday + 1) % 7 + 1,
        "trip_start_timestamp": timestamp,
        "pickup_latitude": AREAS[pickup][0],
        "pickup_longitude": AREAS[pickup][1],
        "dropoff_latitude": AREAS[dropoff][0] if has_dropoff else "",
        "dropoff_longitude": AREAS[dropoff][1] if has_dropoff else "",
        "trip_miles": miles,
        "pickup_census_tract": "",
        "dropoff_census_tract": 17_031_000_000 + 100 * dropoff if rng.random() < 0.7 else "",
        "payment_type": payment_type,
        "company": rng.choice(COMPANIES),
        "trip_seconds": seconds if rng.random() < 0.99 else "",
        "dropoff_community_area": dropoff if has_dropoff else "",
        "tips": round(fare * tip_share, 2),
    }


def main():
    """Runs the command line; the same number of rows is always the same rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "output", type=pathlib.Path, help="CSV file to write; its directory is made if needed"
    )
    parser.add_argument("--rows", type=int, default=4000, help="number of trips")
    args = parser.parse_args()
    rng = random.Random(0)
    trips = [make_trip(rng) for _ in range(args.rows)]
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with args.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(trips[0]))
        writer.writeheader()
        writer.writerows(trips)
    print(f"wrote {args.rows:,} made-up trips to {args.output}")


if __name__ == "__main__":
    main()

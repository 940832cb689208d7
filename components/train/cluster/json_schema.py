"""Prints the JSON Schema for editors: `python -m components.train.cluster.json_schema > clusters/cluster.schema.json`.

It has keys, types, ranges and names. Which machine takes which GPUs, and what each strategy needs, only the launcher
checks.
"""

import json

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.validation import schema

if __name__ == "__main__":
    print(json.dumps(schema(Cluster), indent=2))

"""The cluster file's JSON Schema, for editors: `python -m components.train.cluster.json_schema > clusters/cluster.schema.json`.

It knows keys, types, ranges and names. Which machine takes which GPUs, and what each strategy needs, only the launcher
checks.
"""

import json
from typing import Any

from components.train.cluster import checks
from components.train.cluster.keys import Keys


def cluster_schema() -> dict[str, Any]:
    """Made of the same description that reads the file."""
    return {
        **checks.schema(Keys),
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Cluster file",
        "description": "What a training job runs on; docs/CLUSTERS.md says more.",
    }


if __name__ == "__main__":
    print(json.dumps(cluster_schema(), indent=2))

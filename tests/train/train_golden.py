"""Plans as text, and what writes them anew: python tests/train/train_golden.py

Review the difference that it makes with `git diff tests/train/golden` before it is committed.
"""

import itertools
import json
from pathlib import Path
from typing import Any

from components.train.backends.cluster_spec import vertex_environments
from components.train.backends.processes import plan_processes
from components.train.backends.program import Program
from components.train.backends.resources import divide
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import read
from components.train.cluster.strategies import resolve

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
TIERS = ("BASIC", "BASIC_GPU", "STANDARD_1", "PREMIUM_1")
# Name of the golden file, and what --cluster says.
CLUSTERS = {
    **{f"cluster-{path.stem}": path for path in sorted((ROOT / "clusters").glob("*.yaml"))},
    **{f"source-{path.stem}": path for path in sorted((Path(__file__).parent / "sources").glob("*.yaml"))},
    **{f"tier-{tier}": tier for tier in TIERS},
}


def environments(cluster: Cluster) -> dict[str, dict[str, dict[str, str]]]:
    """Variables of each replica, by back end."""
    program = Program(command=("program",), env={}, job_dir="job", reports=True)
    division = divide(cluster, cores=4, gpus=())
    plan = plan_processes(cluster, program, log_dir="logs", ports=itertools.count(10_001), division=division)
    return {
        "process": {replica.name: dict(replica.env) for replica in plan.replicas},
        "vertex": dict(vertex_environments(cluster)),
    }


def golden(name: str | Path) -> dict[str, Any]:
    """All that the file or tier `name` means."""
    source = resolve(read(name))
    cluster = Cluster.of(source)
    named = all(pool.machine for pool in cluster.pools.values())
    first = {backend: next(iter(each.values())) for backend, each in environments(cluster).items()}
    return {
        "notes": [f"{'REPLACED ' if note.changes else ''}{note}" for note in source.notes],
        "region": source.region,
        "args": source.args,
        "job_dir": source.job_dir,
        "cluster": json.loads(cluster.to_json()),
        "tf_config": {backend: json.loads(each.get("TF_CONFIG", "null")) for backend, each in first.items()},
        "cluster_spec": json.loads(first["vertex"]["CLUSTER_SPEC"]),
        "worker_pool_specs": plan_vertex(cluster, "IMAGE", ["--train-steps", "9"]) if named else None,
    }


def text(name: str | Path) -> str:
    return json.dumps(golden(name), indent=1) + "\n"


if __name__ == "__main__":
    for stem, cluster_name in CLUSTERS.items():
        (GOLDEN / f"{stem}.json").write_text(text(cluster_name))

"""Writes what each cluster means in full: `python -m tests.train.train_golden`.

Review the difference that it makes with `git diff tests/train/golden` before it is committed.
"""

import contextlib
import io
import json

import yaml

from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.lookup import read
from tests.root import ROOT

GOLDEN = ROOT / "tests" / "train" / "golden"
TIERS = ("BASIC", "BASIC_GPU", "STANDARD_1", "PREMIUM_1")
# Name of the golden file, and what --cluster says at the root of the project.
CLUSTERS = {
    f"{kind}-{path.stem}": str(path.relative_to(ROOT))
    for kind, folder in (("cluster", "clusters"), ("source", "tests/train/sources"))
    for path in sorted((ROOT / folder).glob("*.yaml"))
} | {f"tier-{tier}": tier for tier in TIERS}


def text(name):
    with contextlib.chdir(ROOT), contextlib.redirect_stderr(io.StringIO()) as notes:
        source = read(name)
        source.print_notes()
    cluster = source.cluster
    brief = cluster.model_dump(exclude_none=True, exclude_defaults=True)
    meaning = yaml.safe_dump(brief, sort_keys=False, default_flow_style=None, width=110)
    specs = plan_vertex(
        cluster, "IMAGE", [], machines=all(pool.machine for pool in cluster.pools.values())
    )
    return f"{notes.getvalue()}{meaning}\nWorker pools\n{json.dumps(specs, indent=2)}\n"


if __name__ == "__main__":
    for stem, cluster_name in CLUSTERS.items():
        (GOLDEN / f"{stem}.txt").write_text(text(cluster_name))

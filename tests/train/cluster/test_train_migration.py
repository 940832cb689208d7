import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from components.train.cluster.ai_platform import LEGACY_MACHINES
from components.train.cluster.lookup import read
from components.train.cluster.machines import GPUS as OFFERED

PREFIXES = {"chief": "master", "worker": "worker", "ps": "parameterServer", "evaluator": "evaluator"}
USUAL = ("n1-standard-8", "n1-standard-4", "g2-standard-12", "g2-standard-24", "a2-highgpu-2g")
# Type and accelerators of a pool: every machine with each number of GPUs that it may have.
MACHINES: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in LEGACY_MACHINES if name != "cloud_tpu"]
MACHINES += [(name, {}) for name in USUAL if "" in OFFERED[name]]
MACHINES += [
    (name, {"acceleratorConfig": {"type": gpu, "count": count}})
    for name in USUAL
    for gpu, counts in OFFERED[name].items()
    if gpu
    for count in counts
]
POOLS = {role: st.tuples(st.sampled_from(MACHINES), st.integers(0, 3)) for role in PREFIXES}


@settings(max_examples=60, database=None)
@given(st.fixed_dictionaries(POOLS), st.sampled_from([[], ["--sync"]]))
def test_job_of_ai_platform_becomes_cluster_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, pools: dict[str, Any], flags: list[str]
):
    """A cluster with other machines or fewer pools than the file has is refused with --strict."""
    values: dict[str, Any] = {"scaleTier": "CUSTOM"}
    wanted = {}
    for (role, prefix), ((name, gpus), number) in zip(PREFIXES.items(), pools.values(), strict=True):
        replicas = {"chief": 1, "evaluator": min(number, 1)}.get(role, number)
        values |= {f"{prefix}Type": name, f"{prefix}Config": gpus}
        values |= {f"{prefix}Count": replicas} if role != "chief" else {}
        if replicas:
            wanted[role] = replicas, name
    path = tmp_path_factory.getbasetemp() / "config.yaml"
    path.write_text(json.dumps({"trainingInput": values}))
    try:
        source = read(path, flags)
        cluster = source.cluster
    except UserError as error:
        assert "\n" not in str(error)
        return
    is_legacy = any("was" in LEGACY_MACHINES.get(name, {}) for _, name in wanted.values())
    if is_legacy or cluster.pools.keys() != wanted.keys():
        with pytest.raises(UserError, match="--strict allows no replacement"):
            source.refuse_replacements()
    else:
        assert all(cluster.pools[role].replicas == replicas for role, (replicas, _) in wanted.items())

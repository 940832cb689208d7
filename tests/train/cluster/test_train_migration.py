import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from components.train.cluster.ai_platform import LEGACY_MACHINES
from components.train.cluster.lookup import read

MACHINES = st.sampled_from([*LEGACY_MACHINES.keys() - {"cloud_tpu"}, "n1-standard-4", "n1-highcpu-8"])
POOLS = {name: st.tuples(MACHINES, st.integers(0, 2)) for name in ("worker", "parameterServer", "evaluator")}


@given(st.fixed_dictionaries(POOLS), MACHINES)
def test_strict_refuses_every_replacement(
    tmp_path_factory: pytest.TempPathFactory, pools: dict[str, tuple[str, int]], master: str
):
    """A job file of AI Platform keeps its machines, or is refused with --strict."""
    values = {"scaleTier": "CUSTOM", "masterType": master}
    for name, (machine, count) in pools.items():
        values |= {f"{name}Type": machine, f"{name}Count": count}
    path = tmp_path_factory.getbasetemp() / "config.yaml"
    path.write_text(json.dumps({"trainingInput": values}))
    try:
        source = read(path)
        cluster = source.cluster
        source.refuse_replacements()
    except UserError as error:
        assert "\n" not in str(error)
        return
    counts = [1, *(count for _, count in pools.values() if count)]
    machines = [master, *(machine for machine, count in pools.values() if count)]
    assert [pool.replicas for pool in cluster.pools.values()] == counts
    for pool, machine in zip(cluster.pools.values(), machines, strict=True):
        legacy = LEGACY_MACHINES.get(machine, {"machine": machine})
        assert pool.machine == legacy["machine"] and "was" not in legacy

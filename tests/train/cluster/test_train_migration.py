import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from components.train.cluster.ai_platform import LEGACY_MACHINES
from components.train.cluster.lookup import read

ROLES = {"worker": "worker", "parameterServer": "ps", "evaluator": "evaluator"}
MACHINES = st.sampled_from(
    sorted(LEGACY_MACHINES.keys() - {"cloud_tpu"} | {"n1-standard-4", "n1-highcpu-8"})
)
POOLS = st.fixed_dictionaries(dict.fromkeys(ROLES, st.tuples(MACHINES, st.integers(0, 2))))


@given(POOLS, MACHINES)
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
    expected = {"chief": (master, 1)} | {
        role: pools[name] for name, role in ROLES.items() if pools[name][1]
    }
    assert cluster.pools.keys() == expected.keys()
    for role, (machine, count) in expected.items():
        legacy = LEGACY_MACHINES.get(machine, {"machine": machine})
        assert "was" not in legacy
        assert (cluster.pools[role].machine, cluster.pools[role].replicas) == (
            legacy["machine"],
            count,
        )

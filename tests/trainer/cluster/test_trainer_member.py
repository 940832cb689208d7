"""Wrong environments; tests/train/tf_configs.json has right ones."""

import json

import pytest

from tests.errors import user_error
from trainer.cluster.member import from_environment

CHIEF = ["c:2222"]


def tf_config(cluster, role, index=0):
    task = {"type": role, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TF_CONFIG": "{"}, "TF_CONFIG: it cannot be '{': Invalid JSON"),
        (tf_config({"chief": CHIEF}, "boss"), "'boss' is none of master, chief, worker, ps"),
        (tf_config({"chief": CHIEF}, "chief", 1), "chief/1 is not in the cluster"),
        (tf_config({"chief": ["c"]}, "chief"), r"cluster\.chief\.0 cannot be 'c'"),
    ],
)
def test_wrong_environment_is_error(environ, message):
    with user_error(message):
        from_environment(environ)

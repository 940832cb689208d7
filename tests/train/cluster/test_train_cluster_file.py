import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import STRATEGIES
from components.train.cluster.notes import Source
from trainer.base.errors import UserError

PS = "strategy: parameter_server\nchief: {}\nworker: {}\nps: {}\n"
SYNC = "strategy: multi_worker_mirrored\nchief: {}\n"

# What the file says, and what the message must say; test_train_bad_clusters.py has every key with wrong values.
BAD = [
    ("# only a comment\n", "empty"),
    ("- strategy", "top level: ['strategy'] is not a mapping"),
    ("strategy: one_device\n\tchief: {}", "not valid YAML at line 2, column 1"),
    ("chief: !!bool x", "not valid YAML: KeyError"),
    ("chief: !!python/object:os.system {}", "not valid YAML at line 1"),
    (
        "strategy: one_device\nchief: {machine: a, machine: b}",
        "not valid YAML at line 2, column 8: 'machine' stands there twice",
    ),
    ("[" * 500, "not valid YAML"),
    ("{}", "strategy: missing; add 'strategy: one_device'"),
    ("strategy: one_device", "chief: missing; add 'chief: {}'"),
    ("strategy: one_devise\nchief: {}", "strategy: unknown value 'one_devise'; did you mean 'one_device'?"),
    ("strategy: one_device\nchief: {}\nwoker: {}", "top level: unknown key 'woker'; did you mean 'worker'?"),
    (SYNC + "worker: {replicas: 0}", "worker.replicas: 0 is not a whole number from 1 to 1000"),
    (PS + "disk: {size: 100}", "disk: unknown key 'size'; did you mean 'size_gb'?"),
    (PS + "disk: {size_gb: 50}", "disk.size_gb: 50 is not a whole number from 100 to 64000"),
    (
        PS + "scheduling: {timeout: 3600}",
        "scheduling.timeout: 3600 is not a duration; write a number with s, m, h or d",
    ),
    (SYNC + "worker: {accelerator: {count: 1}}", "worker.accelerator.type: missing; add 'type: NVIDIA_TESLA_T4'"),
]


@pytest.mark.parametrize(("text", "says"), BAD)
def test_bad_file_is_refused_in_one_line_that_names_file_and_place(tmp_path: Path, text: str, says: str):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        Cluster.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {says}")
    assert len(message.splitlines()) == 1
    assert len(message) < 400 + len(str(path))


def test_what_is_no_file_of_text_is_refused_and_the_nearest_named(tmp_path: Path):
    (tmp_path / "local.yaml").write_bytes(b"strategy: \xff\xfe\x80")
    for name, says in (
        ("local.yaml", "not valid YAML"),
        ("locl.yaml", r"unknown cluster file '.*/locl.yaml'; did you mean '.*/local.yaml'\?"),
        (".", r"cluster file .*: Is a directory"),
    ):
        with pytest.raises(UserError, match=says):
            Cluster.load(tmp_path / name)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("7d", 604_800)])
def test_durations(tmp_path: Path, text: str, seconds: int):
    (tmp_path / "a.yaml").write_text(PS + f"scheduling: {{timeout: {text}}}")
    assert Cluster.load(tmp_path / "a.yaml").scheduling.timeout_s == seconds


def floats(value):
    """`value` with integers as floats, as protobuf's numbers come."""
    if isinstance(value, dict):
        return {key: floats(each) for key, each in value.items()}
    return float(value) if isinstance(value, int) else value


def test_json_round_trip_brings_integers_back():
    cluster = Cluster.load(Path(__file__).parents[1] / "sources" / "everything.yaml")
    again = Cluster.from_json(json.dumps(floats(json.loads(cluster.to_json()))))
    assert again == cluster
    assert again.to_json() == cluster.to_json()
    assert type(again.worker.replicas) is type(again.disk.size_gb) is type(again.worker.accelerator.count) is int


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"strategy": "one_device"}', "[" * 100_000])
def test_bad_json_is_refused(text: str):
    with pytest.raises(UserError, match="cluster as JSON: "):
        Cluster.from_json(text)


KEYS = st.sampled_from(["strategy", "chief", "worker", "disk", "machine", "replicas", "count", "timeout"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(STRATEGIES),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(KEYS | st.integers() | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(ANYTHING | ANYTHING.map(lambda value: {"strategy": "mirrored", "chief": value}))
def test_any_content_round_trips_or_is_a_user_error(values: object):
    try:
        cluster = Cluster.of(Source(name="a file", kind="", values=values, ours=True))
    except UserError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert Cluster.from_json(cluster.to_json()) == cluster

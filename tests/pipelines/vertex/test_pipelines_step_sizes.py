"""Machines of steps by what they have to hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.storage.storage import File
from pipelines import submit
from pipelines.cloud_options import KEYS
from pipelines.vertex import step_sizes
from pipelines.vertex.submission import prepare

GB = st.floats(0, 1e5)


@given(GB, GB, st.booleans())
def test_no_step_gets_less_memory_than_it_holds_nor_more_than_there_is(source, export, is_table):
    for step, (cpus, memory) in step_sizes.step_sizes(source=source, export=export, is_table=is_table).items():
        held = 8 + (4 * export + is_table * source / 2 if step == "evaluate" else 0)
        assert int(memory[:-1]) >= held or (cpus, memory) == ("96", "624G")
        assert 4 <= int(cpus) <= 96


@pytest.mark.parametrize(
    ("flags", "resources"),
    [
        ([], {"convert": ("32", "128G"), "evaluate": ("16", "64G")}),
        (["--set", "step_resources=evaluate=4:26G"], {"convert": ("32", "128G"), "evaluate": ("4", "26G")}),
    ],
)
def test_a_run_gets_what_its_data_takes_and_what_was_asked_for_stays(monkeypatch, flags, resources):
    held = {"gs://b/data": {"a.csv": 25, "b.csv.gz": 17}, "gs://my-bucket/runs/old/job/model": {"saved_model.pb": 9}}
    files = {
        place: [File(path=f"{place}/{name}", num_bytes=10**9 * gb) for name, gb in each.items()]
        for place, each in held.items()
    }
    monkeypatch.setattr(step_sizes, "list_files", files.__getitem__)
    image = "us-docker.pkg.dev/p/r/i@sha256:" + "a" * 64
    given = ["--project", "demo-project", "--bucket", "gs://my-bucket", "--image", image, *flags]
    submission = prepare(
        KEYS.read(submit._parser().parse_args([*given, "--dataset", "mnist", "--source", "gs://b/data"]))
    )
    sized, told = step_sizes.sized(submission, "old")
    assert sized.resources == resources
    assert len(told) == 2 - len(flags) // 2 and "32 CPUs, 128GB: 110.0 GB of source" in told[0]


def test_small_data_asks_for_nothing_that_vertex_ai_does_not_give_anyway():
    assert {cpus for cpus, _ in step_sizes.step_sizes(source=1, export=1, is_table=True).values()} == {"4"}

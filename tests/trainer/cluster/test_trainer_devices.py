"""What is told of the machine, and the precision that suits it. There is no GPU here: TensorFlow is made to see some."""

import platform

import pytest
import tensorflow as tf

from common import machine
from trainer.cluster import devices


@pytest.fixture
def processor(tmp_path):
    """Makes the root of a machine with such a processor."""

    def make(flags: str) -> str:
        (tmp_path / "proc").mkdir(exist_ok=True)
        (tmp_path / "proc/cpuinfo").write_text(
            f"processor\t: 0\nmodel name\t: Fast 9000\nflags\t\t: fpu {flags} sse\n\n"
        )
        return str(tmp_path)

    return make


@pytest.fixture
def gpus(monkeypatch):
    """Makes TensorFlow see GPUs of these compute capabilities."""

    def make(*capabilities: tuple[int, int]) -> None:
        details = [{"device_name": f"GPU {of[0]}", "compute_capability": of} for of in capabilities]
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: list(range(len(details))))
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda i: details[i])
        monkeypatch.setattr(machine, "gpu_free_bytes", lambda: 22 << 30)

    return make


@pytest.mark.parametrize(
    ("flags", "chosen", "slow"),
    [("avx512f", "float32", True), ("avx512f avx512_bf16", "float32", False), ("amx_bf16 amx_tile", "bfloat16", False)],
)
def test_a_processor_computes_in_what_it_has_instructions_for(processor, flags, chosen, slow):
    root = processor(flags)
    assert devices.precision(root=root) == chosen
    told = devices.advice("bfloat16", root=root)
    assert (told is not None) == slow
    assert told is None or "about half as fast as float32 on this processor" in told
    assert devices.advice("float32", root=root) is None
    assert devices.described(root=root).startswith("Fast 9000 (")


@pytest.mark.parametrize(
    ("capabilities", "chosen"),
    [([(8, 0)], "bfloat16"), ([(7, 5)], "float32"), ([(8, 9), (7, 5)], "float32"), ([(10, 0)], "bfloat16")],
)
def test_gpus_decide_where_there_are_some_and_the_processor_where_none_is_used(processor, gpus, capabilities, chosen):
    gpus(*capabilities)
    root = processor("amx_bf16" if chosen == "float32" else "")
    assert devices.precision(root=root) == chosen
    assert devices.precision(0, root=root) != chosen
    assert devices.advice("bfloat16", root=root) is None
    assert (devices.advice("bfloat16", 0, root=root) is None) == (chosen == "float32")


def test_gpus_are_told_by_name_and_memory_as_far_as_they_are_used(gpus, tmp_path):
    gpus((8, 9), (8, 9), (7, 5))
    assert devices.described() == "GPU 8, GPU 8, GPU 7, 22.0 GiB free on each"
    assert devices.described(1) == "GPU 8, 22.0 GiB free on each"
    assert devices.described(0, str(tmp_path)).startswith(f"{platform.machine()} (no fast instructions known), ")

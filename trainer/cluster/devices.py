"""What a replica computes on, and in what precision that is fast."""

import tensorflow as tf

from common import machine

_AMX, _AMPERE = "amx_bf16", (8, 0)  # 4.2 and 3.3 times the speed of float32 were measured with AMX
_BFLOAT16 = (_AMX, "avx512_bf16")


def described(num_gpus: int | None = None, root: str = "/") -> str:
    """Describes the GPUs that are used, or without one the processor, and their memory."""
    if gpus := _gpus(num_gpus):
        names = ", ".join(gpu.get("device_name", "GPU") for gpu in gpus)
        return f"{names}, {machine.gpu_free_bytes() / 2**30:.1f} GiB free on each"
    memory_gib = machine.memory_bytes(root) / 2**30
    return f"{machine.processor(root)}, {machine.usable_cores(root)} cores, {memory_gib:.1f} GiB"


def precision(num_gpus: int | None = None, root: str = "/") -> str:
    """Returns the precision that is the faster one here: bfloat16 where there are instructions for it."""
    if gpus := _gpus(num_gpus):
        fast = all(gpu.get("compute_capability", (0, 0)) >= _AMPERE for gpu in gpus)
    else:
        fast = _AMX in machine.fact("flags", root).split()
    return "bfloat16" if fast else "float32"


def advice(chosen: str, num_gpus: int | None = None, root: str = "/") -> str | None:
    """Returns a warning of a precision that is slow here."""
    if chosen != "bfloat16" or _gpus(num_gpus) or {*_BFLOAT16} & {*machine.fact("flags", root).split()}:
        return None
    # 0.52 and 0.59 of the speed of float32 were measured with AVX-512 that has no such instructions.
    return "bfloat16 is about half as fast as float32 on this processor, which has no instructions for it; auto chooses"


def _gpus(num_gpus: int | None) -> list[dict]:
    return [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")[:num_gpus]]

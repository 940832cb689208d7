"""Description of the hardware that a replica computes on."""

import tensorflow as tf

from common import machine


def description(num_gpus: int | None = None) -> str:
    """Returns a description of the hardware that this replica computes on, and of its memory.

    Args:
      num_gpus: Number of GPUs that are used, None for all. Without GPUs it is the processor that is
        described.
    """
    if gpus := tf.config.list_physical_devices("GPU")[:num_gpus]:
        names = [
            tf.config.experimental.get_device_details(gpu).get("device_name", "GPU") for gpu in gpus
        ]
        return f"{', '.join(names)}, {machine.gpu_free_bytes() / 2**30:.1f} GiB free on each"
    return (
        f"{machine.processor()}, {machine.usable_cores()} cores, "
        f"{machine.memory_bytes() / 2**30:.1f} GiB"
    )

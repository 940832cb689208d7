"""Description of the hardware that a replica computes on."""

import tensorflow as tf

from common import machine


def description(num_gpus: int | None = None) -> str:
    """Describes the GPUs that are used, by default all, or without one the processor, and their memory."""
    if gpus := tf.config.list_physical_devices("GPU")[:num_gpus]:
        names = [
            tf.config.experimental.get_device_details(gpu).get("device_name", "GPU") for gpu in gpus
        ]
        return f"{', '.join(names)}, {machine.gpu_free_bytes() / 2**30:.1f} GiB free on each"
    return (
        f"{machine.processor()}, {machine.usable_cores()} cores, "
        f"{machine.memory_bytes() / 2**30:.1f} GiB"
    )

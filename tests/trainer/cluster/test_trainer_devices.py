"""The description of what a replica computes on. There is no GPU here: TensorFlow is made to see some."""

import tensorflow as tf

from common import machine
from trainer.cluster import devices


def test_description_of_gpus_in_use(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [8, 7])
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda gpu: {"device_name": f"GPU {gpu}"}
    )
    monkeypatch.setattr(machine, "gpu_free_bytes", lambda: 22 << 30)
    assert devices.description() == "GPU 8, GPU 7, 22.0 GiB free on each"
    assert devices.description(1) == "GPU 8, 22.0 GiB free on each"
    assert " cores, " in devices.description(0)

"""AI Platform's names for machines and clusters: legacy machine names and scale tiers.

Sources: Google's tables of both, as public copies have them; the `ml.v1` API for the GPUs of each name. For names with
V100 only the GPUs are documented; their processors follow the pattern of the K80 and P100 names.
"""

from __future__ import annotations

from typing import NamedTuple


class Legacy(NamedTuple):
    """What a legacy machine name stood for, as a Compute Engine type and its GPUs."""

    machine: str
    gpu: str | None = None
    count: int = 0

    def __str__(self) -> str:
        return f"{self.machine} with {self.count} {self.gpu}" if self.gpu else self.machine


_K80, _P100, _V100 = "NVIDIA_TESLA_K80", "NVIDIA_TESLA_P100", "NVIDIA_TESLA_V100"
LEGACY_MACHINES = {
    "standard": Legacy("n1-standard-4"),
    "large_model": Legacy("n1-highmem-8"),
    "complex_model_s": Legacy("n1-highcpu-8"),
    "complex_model_m": Legacy("n1-highcpu-16"),
    "complex_model_l": Legacy("n1-highcpu-32"),
    "standard_gpu": Legacy("n1-standard-8", _K80, 1),
    "complex_model_m_gpu": Legacy("n1-standard-16", _K80, 4),
    "complex_model_l_gpu": Legacy("n1-standard-32", _K80, 8),
    "standard_p100": Legacy("n1-standard-8", _P100, 1),
    "complex_model_m_p100": Legacy("n1-standard-16", _P100, 4),
    "standard_v100": Legacy("n1-standard-8", _V100, 1),
    "large_model_v100": Legacy("n1-highmem-8", _V100, 1),
    "complex_model_m_v100": Legacy("n1-standard-16", _V100, 4),
    "complex_model_l_v100": Legacy("n1-standard-32", _V100, 8),
}
LEGACY_TPU = "cloud_tpu"

# The `trainingInput` with scale tier CUSTOM that asks for the same machines.
TIERS: dict[str, dict[str, str | int]] = {
    "BASIC": {"masterType": "n1-standard-4"},
    "STANDARD_1": {
        "masterType": "n1-highcpu-8",
        "workerType": "n1-highcpu-8",
        "workerCount": 4,
        "parameterServerType": "n1-standard-4",
        "parameterServerCount": 3,
    },
    "PREMIUM_1": {
        "masterType": "n1-highcpu-16",
        "workerType": "n1-highcpu-16",
        "workerCount": 19,
        "parameterServerType": "n1-highmem-8",
        "parameterServerCount": 11,
    },
    "BASIC_GPU": {"masterType": "standard_gpu"},
    "BASIC_TPU": {"masterType": LEGACY_TPU},
}
CUSTOM = "CUSTOM"

"""The container that serves a version on Vertex AI: TensorFlow Serving by its own command line, in an image of the user's choice.

serving.check("--serving-image", "us-docker.pkg.dev/p/serving/tensorflow@sha256:...")
v1.Model(container_spec=serving.container("us-docker.pkg.dev/p/serving/tensorflow@sha256:...", "mnist"), ...)
"""

import re
from typing import Any

from common.errors import UserError

VERSION = "1"  # the folder of the SavedModel: TensorFlow Serving loads from those that are numbers
IMAGE = r"([a-z0-9-]+-docker\.pkg\.dev/[\w.-]+|([a-z]+\.)?gcr\.io)(/[\w.-]+){2,}(:[\w.-]+)?@sha256:[0-9a-f]{64}"
_REST, _GRPC = 8501, 8500


def check(flag: str, image: str) -> None:
    """Refuses an image without a digest, or from where Vertex AI takes none."""
    if not re.fullmatch(IMAGE, image):
        raise UserError(
            f"{f'{flag} {image}'.strip()}: give an image in Artifact Registry by digest (a tag can be moved), such as "
            "us-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE@sha256:..."
        )


def container(image: str, name: str) -> dict[str, Any]:
    """Returns what Vertex AI calls a `ModelContainerSpec`, for TensorFlow Serving in this image."""
    flags = {"port": _GRPC, "rest_api_port": _REST, "model_name": name, "model_base_path": "$(AIP_STORAGE_URI)"}
    return {
        "image_uri": image,
        "command": ["tensorflow_model_server"],
        "args": [f"--{flag}={value}" for flag, value in flags.items()],
        "ports": [{"container_port": _REST}],
        "predict_route": f"/v1/models/{name}:predict",
        "health_route": f"/v1/models/{name}",
    }

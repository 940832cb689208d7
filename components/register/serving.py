"""The container that serves a version on Vertex AI: TensorFlow Serving by its own command line, in an image of the user's choice.

serving.check("us-docker.pkg.dev/p/serving/tensorflow@sha256:...")
v1.Model(container_spec=serving.container("us-docker.pkg.dev/p/serving/tensorflow@sha256:...", "mnist"), ...)
"""

import re
from typing import Any

from trainer.base.errors import UserError

VERSION = "1"  # the folder of the SavedModel: TensorFlow Serving loads from those that are numbers
_DIGEST = re.compile(r"[a-z0-9][\w.:/-]*@sha256:[0-9a-f]{64}")
_REST, _GRPC = 8501, 8500


def check(image: str) -> None:
    """Refuses an image without a digest."""
    if not _DIGEST.fullmatch(image):
        raise UserError(
            f"--serving-image {image}: give the image by digest, REPOSITORY@sha256:..., for a tag can be moved"
        )


def container(image: str, name: str) -> dict[str, Any] | None:
    """What Vertex AI calls a `ModelContainerSpec`; without an image none, and such a version cannot be deployed."""
    if not image:
        return None
    flags = {"port": _GRPC, "rest_api_port": _REST, "model_name": name, "model_base_path": "$(AIP_STORAGE_URI)"}
    return {
        "image_uri": image,
        "command": ["tensorflow_model_server"],
        "args": [f"--{flag}={value}" for flag, value in flags.items()],
        "ports": [{"container_port": _REST}],
        "predict_route": f"/v1/models/{name}:predict",
        "health_route": f"/v1/models/{name}",
    }

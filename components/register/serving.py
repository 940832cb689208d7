"""The container that serves a version on Vertex AI: `components.serve`, in the image of the run that made the version.

v1.Model(container_spec=serving.container("us-docker.pkg.dev/p/r/training@sha256:...", "mnist"),
...)
"""

import re
from typing import Any

from common.errors import UserError

MODEL_ID_PREFIX = (
    "m-"  # Of the id of a model on Vertex AI, which begins with a letter; the name follows.
)
VERSION = "1"  # Folder of the SavedModel in that of a version, as TensorFlow Serving wants it.
IMAGE = r"([a-z0-9-]+-docker\.pkg\.dev/[\w.-]+|([a-z]+\.)?gcr\.io)(/[\w.-]+){2,}(:[\w.-]+)?@sha256:[0-9a-f]{64}"


def container(image: str, name: str) -> dict[str, Any]:
    """Returns what Vertex AI calls a `ModelContainerSpec`.

    Raises:
      UserError: If the image has no digest, or lies where Vertex AI takes none from.
    """
    if not re.fullmatch(IMAGE, image):
        raise UserError(
            f"--image {image}: give an image in Artifact Registry by digest (a tag can be moved), "
            "such as "
            "us-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE@sha256:..."
        )
    return {
        "image_uri": image,
        "args": ["components.serve", f"--name={name}"],
        "ports": [{"container_port": 8080}],
        "predict_route": f"/v1/models/{name}:predict",
        "health_route": f"/v1/models/{name}",
    }

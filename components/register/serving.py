"""The container in which Vertex AI serves a version.

It runs `components.serve` in the image of the run that made the version.

spec = serving.container("us-docker.pkg.dev/p/r/training@sha256:...", "mnist")
v1.Model(container_spec=spec, ...)
"""

import re
from typing import Any

from common.errors import UserError

# The id of a model on Vertex AI is this prefix and the model's name. It has to begin with a letter.
MODEL_ID_PREFIX = "m-"
VERSION = "1"  # Folder of the SavedModel in that of a version, as TensorFlow Serving requires.
# References of images, by digest, in registries that Vertex AI can pull from.
IMAGE = (
    r"([a-z0-9-]+-docker\.pkg\.dev/[\w.-]+|([a-z]+\.)?gcr\.io)(/[\w.-]+){2,}(:[\w.-]+)?"
    r"@sha256:[0-9a-f]{64}"
)


def container(image: str, name: str) -> dict[str, Any]:
    """Returns the fields of the `ModelContainerSpec` that serves a version of a model.

    Args:
      image: Image by digest.
      name: Name of the model in the registry.

    Raises:
      UserError: If the image has no digest, or is not in Artifact Registry or gcr.io, the only
        places that Vertex AI pulls from.
    """
    if not re.fullmatch(IMAGE, image):
        raise UserError(
            f"--image {image}: give an image in Artifact Registry by digest (a tag can be moved), "
            "such as us-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE@sha256:..."
        )
    return {
        "image_uri": image,
        "args": ["components.serve", f"--name={name}"],
        "ports": [{"container_port": 8080}],
        "predict_route": f"/v1/models/{name}:predict",
        "health_route": f"/v1/models/{name}",
    }

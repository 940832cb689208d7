"""What a machine of Google Compute Engine is told of itself, above all the token of its service account.

After the documentation "About VM metadata" and the requests of google-auth and of TensorFlow's credentials.
"""

from __future__ import annotations

from tests.cloud.faults import Refused
from tests.cloud.front import Answer, Request

PROJECT, NUMBER = "demo-project", "123456789"
_ACCOUNT = f"robot@{PROJECT}.iam.gserviceaccount.com"
_KNOWN = {
    "project/project-id": PROJECT,
    "project/numeric-project-id": NUMBER,
    "universe/universe-domain": "googleapis.com",
    "instance/zone": f"projects/{NUMBER}/zones/us-central1-a",
    "instance/service-accounts/default/email": _ACCOUNT,
}
_FLAVOR = {"Metadata-Flavor": "Google", "Content-Type": "application/text"}


def answer(request: Request) -> Answer:
    """The value at a path.

    Raises:
      Refused: If there is none.
    """
    path = request.path.removeprefix("/computeMetadata/v1/").rstrip("/")
    if path.endswith("/token"):
        return Answer(200, {"access_token": "of-no-worth", "expires_in": 3600, "token_type": "Bearer"}, _FLAVOR)
    if path.startswith("instance/service-accounts/") and "recursive" in request.query:
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        return Answer(200, {"email": _ACCOUNT, "aliases": ["default"], "scopes": scopes}, _FLAVOR)
    if path in _KNOWN or not path:
        return Answer(200, _KNOWN.get(path, "").encode(), _FLAVOR)
    raise Refused(404, path)

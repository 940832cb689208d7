"""Options of a server, as flags of its command."""

import dataclasses
import os

from common.cli import flag
from common.flags import at_least, positive
from components.predict.options import ModelOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """Arguments of a server. On Vertex AI, the environment names its port."""

    host: str = flag(
        str, "address to listen on; 127.0.0.1 for this machine alone", default="0.0.0.0"
    )
    port: int = flag(
        at_least(1, 65535), "to listen on", default=int(os.environ.get("AIP_HTTP_PORT", 8080))
    )
    poll_s: float = flag(positive, "seconds between looks at the alias", default=10.0)
    max_request_mb: float = flag(positive, "largest request in MB", default=32.0)
    max_rows: int = flag(at_least(1), "most rows of a request", default=10_000)
    timeout_s: float = flag(positive, "seconds that a request may take", default=30.0)

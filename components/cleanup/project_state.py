"""What there is in a project and a bucket, as far as cleanup cares."""

import dataclasses
import datetime
from collections.abc import Mapping

from google.cloud import aiplatform_v1 as v1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProjectState:
    """All of it at a moment, as Vertex AI and Cloud Storage tell it."""

    registry: str  # vertex://PROJECT/LOCATION
    bucket: str  # gs://BUCKET
    now: datetime.datetime
    pipelines: tuple[v1.PipelineJob, ...] = ()
    custom_jobs: tuple[v1.CustomJob, ...] = ()
    versions: tuple[v1.Model, ...] = ()
    # Bytes by name in the bucket, below `runs/` and `models/`.
    files: Mapping[str, int] = dataclasses.field(default_factory=dict)
    # By name of a `manifest.json`, `job.json` or `version.json` the fingerprint of the dataset that it is, or was made, of.
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leftover:
    """Something that can go: what it is, why nobody needs it, and what it costs."""

    kind: str  # job, version, files or dataset
    name: str
    why: str
    cost: str
    run: str = ""
    files: tuple[str, ...] = ()  # that go: names in the bucket

"""The state of a project and a bucket, as far as cleanup needs it, and what is left over of it."""

import bisect
import dataclasses
import datetime
import functools
from collections.abc import Mapping
from typing import Any

from google.cloud import aiplatform_v1 as v1


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredFile:
    """An object in the bucket."""

    num_bytes: int
    updated: datetime.datetime


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProjectState:
    """The state at a moment, as Vertex AI and Cloud Storage have it; what is not ours is part of it."""

    registry: str  # vertex://PROJECT/LOCATION
    bucket: str  # gs://BUCKET
    now: datetime.datetime
    pipelines: tuple[v1.PipelineJob, ...] = ()
    custom_jobs: tuple[v1.CustomJob, ...] = ()
    schedules: tuple[v1.Schedule, ...] = ()
    versions: tuple[v1.Model, ...] = ()
    # By name in the bucket, below `runs/` and `models/`.
    files: Mapping[str, StoredFile] = dataclasses.field(default_factory=dict)
    # By name the content of each `manifest.json` and `version.json` among these, and of each `job.json` anywhere in the bucket:
    # None if nobody can tell which dataset the job uses.
    records: Mapping[str, Mapping[str, Any] | None] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def _names(self) -> list[str]:
        return sorted(self.files)

    def below(self, folder: str) -> list[str]:
        """Names of the files below a folder, which ends with a slash."""
        end = f"{folder[:-1]}{chr(ord('/') + 1)}"
        return self._names[bisect.bisect_left(self._names, folder) : bisect.bisect_left(self._names, end)]

    def age(self, folder: str) -> datetime.timedelta:
        """Time since a file below a folder was last written."""
        return self.now - max(self.files[name].updated for name in self.below(folder))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leftover:
    """Something that costs and that nobody needs: what it is, why it can go, and what it costs."""

    kind: str  # job, version, files, dataset or schedule
    name: str
    why: str
    cost: str
    run: str = ""
    files: tuple[str, ...] = ()  # that go: names in the bucket, last the record by which they are ours
    unless: str = ""  # how to delete it, if cleanup only shows it

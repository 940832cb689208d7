"""What there is in a project and a bucket, as far as cleanup cares: plain values, whoever made them."""

import dataclasses
import datetime
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A pipeline job or a custom job."""

    name: str  # projects/.../ID
    display_name: str
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    live: bool  # it has not ended
    machines: int = 0
    hours: float = 0.0  # since it was made


@dataclasses.dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a model."""

    model: str  # its name in the registry
    number: str
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    deployed: bool = False
    folder: str = ""  # gs://BUCKET/models/..., of its files


@dataclasses.dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An endpoint with the versions that it holds, by resource name and number."""

    name: str
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    created: datetime.datetime
    traffic: bool  # some version gets a share of it
    machines: int = 0
    holds_alias: bool = False  # one of its versions carries an alias


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """An object of the bucket."""

    bytes: int
    updated: datetime.datetime


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProjectState:
    """All of it at a moment."""

    registry: str  # vertex://PROJECT/LOCATION
    bucket: str  # gs://BUCKET
    now: datetime.datetime
    pipelines: tuple[Job, ...] = ()
    custom_jobs: tuple[Job, ...] = ()
    versions: tuple[Version, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    files: Mapping[str, File] = dataclasses.field(
        default_factory=dict
    )  # by name in the bucket, below `runs/` and `models/`
    # By name of a `manifest.json`, `job.json` or `version.json` the fingerprint of the dataset that it is, or was made, of.
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    registries: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # by name of a `version.json`, the registry that the version is in


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leftover:
    """Something that can go: what it is, why nobody needs it, and what it costs."""

    kind: str  # job, endpoint, version, files or dataset
    name: str
    why: str
    cost: str
    run: str = ""
    files: tuple[str, ...] = ()  # that go: names in the bucket

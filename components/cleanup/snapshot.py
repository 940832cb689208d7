"""The state of a project and a bucket, asked of Vertex AI and Cloud Storage."""

import contextlib
import datetime
import json
import re
from collections.abc import Iterable
from typing import Any

from google.cloud import aiplatform

from components.bucket import opened, refusals
from components.cleanup.project_state import Endpoint, File, Job, ProjectState, Version
from components.register.register import open_registry
from components.train.backends.vertex.job_settings import MANAGED_BY
from trainer.base.errors import reading

_OURS = 'labels.{}="{}"'.format(*MANAGED_BY)
_ENDED = re.compile("SUCCEEDED|FAILED|CANCELLED|EXPIRED")
_TOLD = re.compile(r"runs/\d+/.*/manifest\.json|runs/[^/]+/job/job\.json|models/[^/]+/[^/]+/version\.json")


def look(project: str, location: str, bucket: str) -> ProjectState:
    """What is there now. The files first: what was made meanwhile is then known as needed, and not as a file."""
    aiplatform.init(project=project, location=location)
    registry = open_registry(f"vertex://{project}/{location}")
    now = datetime.datetime.now(datetime.UTC)
    with opened(bucket) as (store, _):
        blobs = [blob for folder in ("runs/", "models/") for blob in store.list_blobs(prefix=folder)]
        told = {blob.name: _json(store.blob(blob.name)) for blob in blobs if _TOLD.fullmatch(blob.name)}
    with refusals(str(registry)):
        endpoints = aiplatform.Endpoint.list(filter=_OURS)
        pipelines = tuple(_job(job, now) for job in aiplatform.PipelineJob.list(filter=_OURS))
        jobs = tuple(_job(job, now) for job in aiplatform.CustomJob.list(filter=_OURS))
        versions = tuple(_versions(registry))
    aliased = {(_id(registry.resource_name(v.model)), v.number) for v in versions if v.aliases}
    return ProjectState(
        registry=str(registry),
        bucket=bucket,
        now=now,
        pipelines=pipelines,
        custom_jobs=jobs,
        versions=versions,
        endpoints=tuple(_endpoint(endpoint, aliased) for endpoint in endpoints),
        files={blob.name: File(bytes=blob.size, updated=blob.updated) for blob in blobs},
        fingerprints={name: of for name, content in told.items() if (of := _fingerprint(content))},
        registries={name: content["facts"].get("registry", "") for name, content in told.items() if "facts" in content},
    )


def _json(blob: Any) -> dict[str, Any]:
    """What a file says; of a damaged manifest, which may be somebody else's, nothing, so that its dataset stays."""
    content = blob.download_as_bytes()
    with contextlib.suppress(ValueError, TypeError) if blob.name.endswith("/manifest.json") else reading(blob.name):
        return dict(json.loads(content))
    return {}


def _fingerprint(content: dict[str, Any]) -> str:
    """Of the dataset, as a manifest, a job's identity and a version's facts have it."""
    return (content.get("identity") or content.get("facts") or content).get("fingerprint", "")


def _job(job: Any, now: datetime.datetime) -> Job:
    told = job.gca_resource
    pools = told.job_spec.worker_pool_specs if isinstance(job, aiplatform.CustomJob) else ()
    return Job(
        name=job.resource_name,
        display_name=job.display_name,
        labels=dict(told.labels),
        live=not _ENDED.search(told.state.name),
        machines=sum(max(1, pool.replica_count) for pool in pools),
        hours=(now - job.create_time).total_seconds() / 3600,
    )


def _versions(registry: Any) -> Iterable[Version]:
    for name in registry.names():
        for number, model in registry.resources(name).items():
            yield Version(
                model=name,
                number=number,
                labels=dict(model.labels),
                aliases=tuple(model.version_aliases),
                deployed=bool(model.deployed_models),
                folder=registry.folder(name, number),
            )


def _endpoint(endpoint: Any, aliased: set[tuple[str, str]]) -> Endpoint:
    told = endpoint.gca_resource
    held = {(_id(model.model), model.model_version_id) for model in told.deployed_models}
    return Endpoint(
        name=endpoint.resource_name,
        labels=dict(told.labels),
        created=endpoint.create_time,
        traffic=any(told.traffic_split.values()),
        machines=sum(max(1, model.dedicated_resources.min_replica_count) for model in told.deployed_models),
        holds_alias=not held.isdisjoint(aliased),
    )


def _id(resource_name: str) -> str:
    """Of a model, however its project is called and with whatever version."""
    return resource_name.rpartition("/")[2].partition("@")[0]

"""The state of a project and a bucket, asked of Vertex AI and Cloud Storage."""

import contextlib
import datetime
import json
import re
from typing import Any

from google.cloud import aiplatform

from components.bucket import OURS, refusals
from components.cleanup.project_state import ProjectState
from components.files.store import asked
from components.register.register import open_registry
from trainer.base.errors import reading

_TOLD = re.compile(r"runs/\d+/.*/manifest\.json|runs/[^/]+/job/job\.json|models/[^/]+/[^/]+/version\.json")


def look(project: str, location: str, bucket: str) -> ProjectState:
    """What is there now. The files first: what was made meanwhile is then known as needed, and not as a file."""
    aiplatform.init(project=project, location=location)
    registry = open_registry(f"vertex://{project}/{location}")
    now = datetime.datetime.now(datetime.UTC)
    with asked(bucket) as (store, _):
        blobs = [blob for folder in ("runs/", "models/") for blob in store.list_blobs(prefix=folder)]
        told = {blob.name: _json(store.blob(blob.name)) for blob in blobs if _TOLD.fullmatch(blob.name)}
    # As a job's identity, a version's facts and a manifest have it.
    made_of = {name: content.get("identity") or content.get("facts") or content for name, content in told.items()}
    with refusals(str(registry)):
        kinds = aiplatform.PipelineJob, aiplatform.CustomJob
        pipelines, jobs = (tuple(each.gca_resource for each in kind.list(filter=OURS)) for kind in kinds)
        versions = tuple(model for name in registry.names() for model in registry.resources(name).values())
    return ProjectState(
        registry=str(registry),
        bucket=bucket,
        now=now,
        pipelines=pipelines,
        custom_jobs=jobs,
        versions=versions,
        files={blob.name: blob.size for blob in blobs},
        fingerprints={name: of["fingerprint"] for name, of in made_of.items() if of.get("fingerprint")},
    )


def _json(blob: Any) -> dict[str, Any]:
    """What a file says; of a damaged manifest, which may be somebody else's, nothing, so that its dataset stays."""
    content = blob.download_as_bytes()
    with contextlib.suppress(ValueError, TypeError) if blob.name.endswith("/manifest.json") else reading(blob.name):
        return dict(json.loads(content))
    return {}

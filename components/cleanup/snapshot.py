"""The state of a project and a bucket, asked of Vertex AI and Cloud Storage."""

import datetime
import json
import re
import sys

from google.cloud import aiplatform

from components.bucket import OURS, refusals
from components.cleanup.project_state import ProjectState
from components.files.store import asked
from components.register.register import open_registry
from components.register.vertex import folder_of
from trainer.base.errors import UserError

_TOLD = re.compile(r"runs/\d+/.*/manifest\.json|runs/[^/]+/job/job\.json|models/[^/]+/[^/]+/version\.json")


def look(project: str, location: str, bucket: str) -> ProjectState:
    """What is there now. The files first: what was made meanwhile is then known as needed, and not as a file."""
    aiplatform.init(project=project, location=location)
    registry = open_registry(f"vertex://{project}/{location}")
    now = datetime.datetime.now(datetime.UTC)
    with asked(bucket) as (store, _):
        blobs = [blob for folder in ("runs/", "models/") for blob in store.list_blobs(prefix=folder)]
        names = [blob.name for blob in blobs if _TOLD.fullmatch(blob.name)]
        records = {name: store.blob(name).download_as_bytes() for name in names}
    with refusals(str(registry)):
        kinds = aiplatform.PipelineJob, aiplatform.CustomJob
        pipelines, jobs = (tuple(each.gca_resource for each in kind.list(filter=OURS)) for kind in kinds)
        versions = tuple(model for name in registry.names() for model in registry.resources(name).values())
    ours = {f"{folder_of(version)}/version.json".removeprefix(f"{bucket}/") for version in versions}
    fingerprints = {name: _fingerprint(name, content, name in ours) for name, content in records.items()}
    return ProjectState(
        registry=str(registry),
        bucket=bucket,
        now=now,
        pipelines=pipelines,
        custom_jobs=jobs,
        versions=versions,
        files={blob.name: blob.size for blob in blobs},
        fingerprints={name: of for name, of in fingerprints.items() if of},
    )


def _fingerprint(name: str, content: bytes, is_ours: bool) -> str:
    """The fingerprint of the dataset that a record is of, or was made of; empty if it tells none.

    A damaged manifest may be somebody else's: its dataset stays. So may a `version.json` in the folder of no version of ours.
    """
    try:
        record = json.loads(content)
        # As a job's identity, a version's facts and a manifest have it.
        return str((record.get("identity") or record.get("facts") or record).get("fingerprint") or "")
    except (ValueError, AttributeError) as error:
        if name.endswith("/manifest.json"):
            return ""
        if is_ours or name.startswith("runs/"):
            raise UserError(f"{name} cannot be used ({error}); put the right one back, or delete it") from None
    print(f"note: {name} is no record of this program and is skipped", file=sys.stderr)
    return ""

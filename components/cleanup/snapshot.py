"""The state of a project and a bucket, asked of Vertex AI and Cloud Storage."""

import datetime
import re
import sys
from collections.abc import Mapping
from typing import Any

from google.cloud import aiplatform

from common import bounded_json
from common.errors import UserError
from common.google_cloud import OURS, refusals
from common.storage.bucket import connect
from common.storage.storage import map_in_threads
from components.cleanup.project_state import ProjectState, StoredFile
from components.register.register import open_registry
from components.register.store import NAME, RECORD
from components.register.vertex import FOLDER, folder_of, name_of

_RECORD = re.compile(r"runs/\d+/.*/manifest\.json|models/[^/]+/[^/]+/version\.json")
_FIELDS = "items(name,size,updated),nextPageToken"


def look(project: str, location: str, bucket: str) -> ProjectState:
    """Returns the state now. It lists files first: what is made meanwhile is then known as needed, and not as a file."""
    aiplatform.init(project=project, location=location)
    registry = open_registry(f"vertex://{project}/{location}")
    now = datetime.datetime.now(datetime.UTC)
    with connect(bucket) as (store, _):
        blobs = [blob for top in ("runs/", "models/") for blob in store.list_blobs(prefix=top, fields=_FIELDS)]
        # A job may have its directory anywhere, and its dataset below `runs/`.
        jobs = [blob.name for blob in store.list_blobs(match_glob="**/job.json", fields=_FIELDS)]
        names = [*jobs, *(blob.name for blob in blobs if _RECORD.fullmatch(blob.name))]
        contents = map_in_threads(lambda name: store.blob(name).download_as_bytes(), names)
    with refusals(str(registry)):
        kinds = (aiplatform.PipelineJob, OURS), (aiplatform.CustomJob, None), (aiplatform.PipelineJobSchedule, None)
        lists = (tuple(each.gca_resource for each in kind.list(filter=terms)) for kind, terms in kinds)
        pipelines, custom_jobs, schedules = lists
        # A model whose default version is somebody else's is not among the names of the registry.
        folders = [name.split("/")[1] for name in names if name.startswith(f"{FOLDER}/")]
        models = {*registry.names(), *filter(NAME.fullmatch, folders)}
        versions = tuple(version for name in models for version in registry.all_versions(name))
    ours = {f"{folder_of(each)}/{RECORD}".removeprefix(f"{bucket}/") for each in versions if name_of(each)}
    return ProjectState(
        registry=str(registry),
        bucket=bucket,
        now=now,
        pipelines=pipelines,
        custom_jobs=custom_jobs,
        schedules=schedules,
        versions=versions,
        files={blob.name: StoredFile(num_bytes=blob.size, updated=blob.updated) for blob in blobs},
        records={name: _record(name, content, ours) for name, content in zip(names, contents, strict=True)},
    )


def _record(name: str, content: bytes, ours: set[str]) -> Mapping[str, Any] | None:
    """Parses a record; one that cannot be understood may be somebody else's, and is empty, or None if it is a job's."""
    try:
        record = bounded_json.parse(content)
        (record.get("identity") or record.get("facts") or record).get("fingerprint")
        return record
    except (ValueError, AttributeError) as error:
        if name in ours or re.fullmatch("runs/[^/]+/job/job.json", name):
            raise UserError(f"{name} cannot be used ({error}); put the right one back, or delete it") from None
    if not name.endswith("/manifest.json"):
        print(f"note: {name} is no record of this program and is skipped", file=sys.stderr)
    return None if name.endswith("/job.json") else {}

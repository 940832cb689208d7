"""Lists and deletes what runs on Vertex AI left: jobs, versions, and files of their bucket.

state = load_state("my-project", "us-central1", "gs://my-bucket")
leftovers(state, keep_versions=5)      # everything of ours that costs and that nobody needs
leftovers(state, run="training-7")     # of one run

Ours is what carries our label, and in the bucket what lies in the folder of a pipeline job that does and has ended, or in a
folder with our record. Of a run that still runs nothing goes, nor anything that has an alias. That a record is missing, or
cannot be understood, never makes anything ours.
"""

import collections
import contextlib
import dataclasses
import datetime
import functools
import json
import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.api_core.exceptions import GoogleAPICallError, NotFound
from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1
from google.cloud.aiplatform.utils import MetadataClientWithOverride

from common import bounded_json
from common.errors import UserError
from common.google_cloud import OURS, is_ours, refusals
from common.manifest import FILE as MANIFEST
from common.storage.bucket import connect
from common.storage.files import delete_files, list_files, read_bytes, write_text
from common.storage.storage import File, map_in_threads
from components.cleanup.cleanup import Leftover
from components.convert.writing.output import is_own
from components.register.register import open_registry
from components.register.registry import NAME, RECORD, is_record_of
from components.register.vertex import FOLDER, folder_of, name_of

JOURNAL = "runs/cleanup"
_MIN_AGE_DAYS = 1  # Younger files may belong to something that begins just now.
_UNFINISHED_DAYS = 30  # Checkpoints that a resume could begin with are shown after that.
_ENDED = re.compile("SUCCEEDED|FAILED|CANCELLED|EXPIRED")
_TEMPORARY = re.compile(r"\.tmp$|\.partial/|_temp/")
_DATASET = re.compile(rf"(runs/\d+/([^/]+)/(?:.+/)?)(?:{re.escape(MANIFEST)}|\.converting/.+)")
_RECORD = re.compile(r"runs/\d+/.*/manifest\.json|models/[^/]+/[^/]+/version\.json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProjectState:
    """State of a project and a bucket at a moment; what is not ours is part of it.

    Attributes:
      registry: `vertex://PROJECT/LOCATION`.
      bucket: `gs://BUCKET`.
      now: The moment.
      files: Files below `runs/` and `models/`, by name in the bucket.
      records: Content of each `manifest.json` and `version.json` among these, and of each `job.json` anywhere in the
        bucket, by name; None if nobody can tell which dataset the job uses.
    """

    registry: str
    bucket: str
    now: datetime.datetime
    pipelines: tuple[v1.PipelineJob, ...] = ()
    custom_jobs: tuple[v1.CustomJob, ...] = ()
    schedules: tuple[v1.Schedule, ...] = ()
    versions: tuple[v1.Model, ...] = ()
    files: Mapping[str, File] = dataclasses.field(default_factory=dict)
    records: Mapping[str, Mapping[str, Any] | None] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def names_below(self) -> Mapping[str, list[str]]:
        """Names of the files below each folder, which ends with a slash."""
        below = collections.defaultdict(list)
        for name in self.files:
            for slash in re.finditer("/", name):
                below[name[: slash.end()]].append(name)
        return below

    def days(self, folder: str) -> float:
        """Returns the days since a file below a folder was last written."""
        return (self.now.timestamp() - max(self.files[name].updated_s for name in self.names_below[folder])) / 86400


def load_state(project: str, location: str, bucket: str) -> ProjectState:
    """Returns the state now. It lists files first: what is made meanwhile is then known as needed, and not as a file."""
    aiplatform.init(project=project, location=location)
    registry = open_registry(f"vertex://{project}/{location}")
    now = datetime.datetime.now(datetime.UTC)
    listed = [file for top in ("runs", "models") for file in list_files(f"{bucket}/{top}")]
    files = {file.path.removeprefix(f"{bucket}/"): file for file in listed}
    with connect(bucket) as (client, _):  # A job may have its directory anywhere, and its dataset below `runs/`.
        names = [
            *(blob.name for blob in client.list_blobs(match_glob="**/job.json")),
            *filter(_RECORD.fullmatch, files),
        ]
    contents = map_in_threads(lambda name: read_bytes(f"{bucket}/{name}"), names)
    with refusals(str(registry)):
        kinds = (aiplatform.PipelineJob, OURS), (aiplatform.CustomJob, None), (aiplatform.PipelineJobSchedule, None)
        lists = (tuple(item.gca_resource for item in kind.list(filter=terms)) for kind, terms in kinds)
        pipelines, custom_jobs, schedules = lists
        # A model whose default version is somebody else's is not among the names of the registry.
        folders = [name.split("/")[1] for name in names if name.startswith(f"{FOLDER}/")]
        models = {*registry.names(), *filter(NAME.fullmatch, folders)}
        versions = tuple(version for name in models for version in registry.all_versions(name))
    ours = {f"{folder_of(version)}/{RECORD}".removeprefix(f"{bucket}/") for version in versions if name_of(version)}
    return ProjectState(
        registry=str(registry),
        bucket=bucket,
        now=now,
        pipelines=pipelines,
        custom_jobs=custom_jobs,
        schedules=schedules,
        versions=versions,
        files=files,
        records={name: _parse(name, content, ours) for name, content in zip(names, contents, strict=True)},
    )


def _parse(name: str, content: bytes | None, ours: set[str]) -> Mapping[str, Any] | None:
    """Parses a record; one that cannot be understood may be somebody else's, and is empty, or None if it is a job's."""
    try:
        record = bounded_json.parse(content or b"")
        _fingerprint(record)
        return record
    except (ValueError, AttributeError) as error:
        if name in ours or re.fullmatch("runs/[^/]+/job/job.json", name):
            raise UserError(f"{name} cannot be used ({error}); put the right one back, or delete it") from None
    if not name.endswith(f"/{MANIFEST}"):
        print(f"note: {name} is no record of this program and is skipped", file=sys.stderr)
    return None if name.endswith("/job.json") else {}


def _fingerprint(record: Mapping[str, Any]) -> str:
    """Returns the fingerprint of the dataset that a manifest, a job's or a version's record is about; "" if none."""
    return str((record.get("identity") or record.get("facts") or record).get("fingerprint") or "")


def leftovers(state: ProjectState, *, keep_versions: int | None = None, run: str = "") -> list[Leftover]:
    """Returns what can go or is to be shown, of one run if that is named; no request is sent.

    Args:
      state: State of the project.
      keep_versions: Versions of each model that stay because they are the newest; None for all.
      run: Run to which the list is restricted.
    """
    pipelines = [job for job in state.pipelines if is_ours(job.labels)]
    jobs = [job for job in state.custom_jobs if _is_live(job) and is_ours(job.labels)]
    running = {run_of(job) for job in pipelines if _is_live(job)}
    busy = running | {run_of(job) for job in jobs}
    orphans = [job for job in jobs if run_of(job) in {run_of(job) for job in pipelines} - running]
    run_of_pipeline = {
        _id(job.name): run_of(job)
        for job in pipelines
        if run_of(job) not in busy and job.runtime_config.gcs_output_directory.rstrip("/") == f"{state.bucket}/runs"
    }
    rules = [
        map(functools.partial(_job, state), orphans),
        _versions(state, keep_versions, busy),
        _unregistered(state, busy),
        _files(state, sorted(set(run_of_pipeline.values()))),
        # Which dataset a run that still runs has from the cache, nobody knows yet.
        _datasets(state, run_of_pipeline if not busy else {}),
        _schedules(state),
    ]
    return [leftover for rule in rules for leftover in rule if run in ("", leftover.run)]


def run_of(job: v1.PipelineJob | v1.CustomJob) -> str:
    """Returns the run that a job is of; in a run that a schedule began only the name says it."""
    return job.labels.get("run") or (_id(job.name) if "/pipelineJobs/" in job.name else job.display_name)


def _id(resource_name: str) -> str:
    """Returns the last part of `projects/.../ID`."""
    return resource_name.rpartition("/")[2]


def _is_live(job: v1.PipelineJob | v1.CustomJob) -> bool:
    return not _ENDED.search(job.state.name)


def _job(state: ProjectState, job: v1.CustomJob) -> Leftover:
    machines = sum(max(1, pool.replica_count) for pool in job.job_spec.worker_pool_specs)
    hours = machines * (state.now - job.create_time).total_seconds() / 3600
    cost = f"{machines} machines, {hours:.1f} machine-hours at most by now"
    return Leftover(kind="job", name=job.name, why="its run has ended", cost=cost, run=run_of(job))


def _versions(state: ProjectState, keep: int | None, busy: set[str]) -> Iterator[Leftover]:
    models = collections.defaultdict(list)
    for version in sorted(filter(name_of, state.versions), key=lambda version: -int(version.version_id)):
        models[name_of(version)].append(version)
    for name, newest_first in models.items() if keep is not None else ():
        for version in newest_first[keep:]:
            run = version.labels.get("run", "")
            folder = f"{folder_of(version)}/".removeprefix(f"{state.bucket}/")
            is_needed = version.version_aliases or version.deployed_models or run in busy
            if folder.startswith(f"{FOLDER}/") and not is_needed:
                is_record = is_record_of(folder, state.records.get(f"{folder}{RECORD}"))
                why = f"it is older than the newest {keep}, and has no alias"
                files = state.names_below[folder] if is_record else []
                id = f"{name} {version.version_id}"
                yield _of_files(state, folder, files, kind="version", name=id, why=why, run=run)


def _unregistered(state: ProjectState, busy: set[str]) -> Iterator[Leftover]:
    """Yields folders that this registry began and that no version of it has."""
    known = {str(folder_of(version)) for version in state.versions}
    for name, record in state.records.items():
        folder = name.removesuffix(RECORD)
        if (
            folder.startswith(f"{FOLDER}/")
            and is_record_of(folder, record)
            and record.get("registry") == state.registry
            and f"{state.bucket}/{folder}".rstrip("/") not in known
            and (run := record.get("facts", {}).get("run", "")) not in busy
            and state.days(folder) > _MIN_AGE_DAYS
        ):
            yield _of_files(state, folder, state.names_below[folder], why="no version has this folder", run=run)


def _files(state: ProjectState, runs: Iterable[str]) -> Iterator[Leftover]:
    for run in runs:
        job = f"runs/{run}/job/"
        days = int(state.days(f"runs/{run}/")) if state.names_below[job] else 0
        is_done = f"{job}DONE.json" in state.files
        unfinished = f"checkpoints of a job that ended unfinished {days} days ago"
        shown = "gcloud storage rm --recursive deletes them"
        for folder, is_temporary, condition, why, unless in (
            (job, True, True, "temporary", ""),
            (f"{job}checkpoints/", False, is_done, "checkpoints of a finished job", ""),
            (f"{job}checkpoints/", False, not is_done and days >= _UNFINISHED_DAYS, unfinished, shown),
        ):
            names = [name for name in state.names_below[folder] if bool(_TEMPORARY.search(name)) == is_temporary]
            if names and condition:
                yield _of_files(state, folder, names, why=why, run=run, unless=unless)


def _datasets(state: ProjectState, run_of_pipeline: Mapping[str, str]) -> Iterator[Leftover]:
    users = [record for name, record in state.records.items() if not name.endswith(f"/{MANIFEST}")]
    if None in users:
        return
    used = {*map(_fingerprint, users)} - {""}
    live = " ".join(str(job.job_spec) for job in state.custom_jobs if _is_live(job))
    for folder, pipeline in sorted({match.groups() for match in map(_DATASET.fullmatch, state.files) if match}):
        fingerprint = _fingerprint(state.records.get(f"{folder}{MANIFEST}") or {})
        is_half = f"{folder}{MANIFEST}" not in state.files
        address = f"{state.bucket.removeprefix('gs://')}/{folder}".rstrip("/")
        is_needed = address in live or state.days(folder) <= _MIN_AGE_DAYS or fingerprint in used
        if pipeline in run_of_pipeline and (is_half or fingerprint) and not is_needed:
            why = "half a dataset" if is_half else "no training and no version is of this dataset"
            files = [name for name in state.names_below[folder] if is_own(name.removeprefix(folder))]
            yield _of_files(state, folder, files, kind="dataset", why=why, run=run_of_pipeline[pipeline])


def _schedules(state: ProjectState) -> Iterator[Leftover]:
    for schedule in state.schedules:
        if is_ours(schedule.create_pipeline_job_request.pipeline_job.labels):
            yield Leftover(
                kind="schedule",
                name=schedule.name,
                why=f"it is {schedule.state.name.lower()}",
                cost=f"a run at {schedule.cron}, {schedule.started_run_count} by now",
                unless=f"pipelines/submit.py --cancel {_id(schedule.name)} deletes it",
            )


def _of_files(state: ProjectState, folder: str, names: Iterable[str], **fields: str) -> Leftover:
    """Returns a leftover of files in a folder, its record the last, by the folder's name unless `fields` have another."""
    files = tuple(sorted(names, key=lambda name: name in (f"{folder}{RECORD}", f"{folder}{MANIFEST}")))
    num_bytes = sum(state.files[name].num_bytes for name in files)
    cost = f"{num_bytes / 1e9:.3f} GB"
    return Leftover(**{"name": f"{state.bucket}/{folder}", **fields}, files=files, num_bytes=num_bytes, cost=cost)


def remove(state: ProjectState, leftovers: Sequence[Leftover]) -> Iterator[tuple[Leftover, str]]:
    """Removes leftovers, and yields each with its error, or an empty one; an error of one does not save the others.

    `gs://BUCKET/runs/cleanup/<time>.jsonl` has a line for each before anything goes. At the end it has what came of it:
    its `error`, which stays null of what was not tried.
    """
    lines = [{**dataclasses.asdict(leftover), "error": None} for leftover in leftovers]
    journal = f"{state.bucket}/{JOURNAL}/{state.now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}.jsonl"

    def write_journal() -> None:
        write_text(journal, "".join(json.dumps(line) + "\n" for line in lines))

    write_journal()
    try:
        for leftover, line in zip(leftovers, lines, strict=True):
            try:
                with refusals(state.registry):
                    _remove(state, leftover)
                line["error"] = ""
            except (UserError, ConnectionError) as error:
                line["error"] = str(error)
            yield leftover, line["error"]
    finally:
        write_journal()


def _remove(state: ProjectState, leftover: Leftover) -> None:
    if leftover.kind == "job":
        aiplatform.CustomJob.get(leftover.name).cancel()
    elif leftover.kind == "version":
        open_registry(state.registry).delete(*leftover.name.split(" "), f"cleanup: {leftover.why}")
    else:
        if leftover.kind == "dataset":
            _forget(leftover.name.rstrip("/"))
        *files, record = (f"{state.bucket}/{name}" for name in leftover.files)
        delete_files(files)
        delete_files([record])  # The last: without it nobody would know the others.


def _forget(dataset: str) -> None:
    """Has the pipelines' cache forget who made a dataset.

    The cache goes by the executions in ML Metadata, and takes their files as there.
    """
    config = aiplatform.initializer.global_config
    client = config.create_client(client_class=MetadataClientWithOverride)
    store = f"projects/{config.project}/locations/{config.location}/metadataStores/default"
    with contextlib.suppress(NotFound):  # No pipeline has ever ended a step in this project.
        for artifact in client.list_artifacts(request={"parent": store, "filter": f'uri="{dataset}"'}):
            graph = client.query_artifact_lineage_subgraph(request={"artifact": artifact.name, "max_hops": 1})
            for event in graph.events:
                if event.artifact == artifact.name and event.type_ == v1.Event.Type.OUTPUT:
                    client.delete_execution(name=event.execution).result()


def cancel_jobs(project: str, location: str, run_id: str) -> list[str]:
    """Cancels the jobs that are ours, have the run's name and have not ended. Returns their resource names.

    All are tried before an ExceptionGroup has the reasons why some could not be cancelled.
    """
    jobs = aiplatform.CustomJob.list(filter=f'{OURS} AND display_name="{run_id}"', project=project, location=location)
    cancelled = []
    failures = []
    for job in jobs:
        if not _is_cancellable(job):
            continue
        try:
            job.cancel()
            cancelled.append(job.resource_name)
        except GoogleAPICallError as error:
            if _is_cancellable(job):  # Else it ended by itself meanwhile.
                failures.append(error)
    if failures:
        raise ExceptionGroup(f"jobs of run {run_id} that may still run and cost money", failures)
    return cancelled


def _is_cancellable(job: aiplatform.CustomJob) -> bool:
    return not re.search(f"{_ENDED.pattern}|CANCELLING", job.state.name)

"""Lists and deletes what runs on Vertex AI left: jobs, endpoints, versions and files.

state = load_state("my-project", "us-central1", "gs://my-bucket")
leftovers(state, keep_versions=5)      # of all runs
leftovers(state, run="training-7")     # of one run

Only what carries this program's label is listed, and in the bucket only what lies in the folder of
a pipeline job that carries it and has ended. Nothing is listed of a run that has not ended, nor
anything that has an alias. Datasets stay, because the cache of the pipeline has them for later
runs.
"""

import collections
import dataclasses
import datetime
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.api_core.exceptions import GoogleAPICallError
from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1

from common.errors import UserError
from common.google_cloud import OURS, is_ours, refusals
from common.storage.files import delete_files, list_files, write_text
from common.storage.storage import File
from components.cleanup.cleanup import Leftover
from components.register.vertex import FOLDER, VertexRegistry, name_of

JOURNAL = "runs/cleanup"
_JOBS: Mapping[str, Any] = {
    "customJobs": aiplatform.CustomJob,
    "batchPredictionJobs": aiplatform.BatchPredictionJob,
}
_Job = (
    v1.PipelineJob
    | v1.CustomJob
    | v1.BatchPredictionJob
    | aiplatform.CustomJob
    | aiplatform.BatchPredictionJob
)
_UNFINISHED_DAYS = 30  # Checkpoints of an unfinished job stay so long, for a resume.
_TEMPORARY = re.compile(r"\.tmp$|\.partial/|_temp/")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProjectState:
    """Resources of a project and files of a bucket at one moment.

    Some of them may be made by other programs.

    Attributes:
      bucket: `gs://BUCKET`.
      now: The moment.
      pipelines: Pipeline jobs.
      jobs: Training jobs and batch predictions.
      versions: Versions in the model registry.
      endpoints: Endpoints.
      files: Files below `runs/` and `models/`, by name in the bucket.
    """

    bucket: str
    now: datetime.datetime
    pipelines: Sequence[v1.PipelineJob] = ()
    jobs: Sequence[v1.CustomJob | v1.BatchPredictionJob] = ()
    versions: Sequence[v1.Model] = ()
    endpoints: Sequence[v1.Endpoint] = ()
    files: Mapping[str, File] = dataclasses.field(default_factory=dict)

    def below(self, folder: str) -> list[str]:
        """Returns the names in the bucket of the files below a folder.

        Args:
          folder: Name of the folder in the bucket, with a slash at its end.
        """
        return [name for name in self.files if name.startswith(folder)]

    def leftover(self, names: Sequence[str], **fields: str) -> Leftover:
        """Returns files as a leftover with their total size.

        Args:
          names: Names of the files in the bucket.
          **fields: Other fields of the leftover.
        """
        num_bytes = sum(self.files[name].num_bytes for name in names)
        return Leftover(files=tuple(names), num_bytes=num_bytes, **fields)


def load_state(project: str, location: str, bucket: str) -> ProjectState:
    """Returns the present state of a project and a bucket.

    Only resources with this program's label are listed, and files below `runs/` and `models/`.
    Files are listed before jobs. A run that begins meanwhile then has no files in the list. Project
    and location become the ones that Google's client uses.

    Args:
      project: Id of the project.
      location: Region.
      bucket: `gs://BUCKET`.

    Raises:
      UserError: If Google Cloud refuses a request.
      ConnectionError: If Google Cloud does not answer.
    """
    aiplatform.init(project=project, location=location)
    registry = VertexRegistry(f"vertex://{project}/{location}")
    files = [file for top in ("runs", FOLDER) for file in list_files(f"{bucket}/{top}")]
    with refusals(str(registry)):
        return ProjectState(
            bucket=bucket,
            now=datetime.datetime.now(datetime.UTC),
            pipelines=[job.gca_resource for job in aiplatform.PipelineJob.list(filter=OURS)],
            jobs=[job.gca_resource for kind in _JOBS.values() for job in kind.list(filter=OURS)],
            versions=[version for name in registry.names() for version in registry.resources(name)],
            endpoints=[endpoint.gca_resource for endpoint in aiplatform.Endpoint.list(filter=OURS)],
            files={file.path.removeprefix(f"{bucket}/"): file for file in files},
        )


def leftovers(
    state: ProjectState, *, keep_versions: int | None = None, run: str = ""
) -> list[Leftover]:
    """Returns what can be deleted. Sends no request.

    That is jobs that go on although their run has ended; in this bucket, temporary files and
    checkpoints of runs that have ended with all of their jobs; endpoints that get no requests and
    are at least a day old; and old versions that have no alias, are not deployed, and are of no run
    that goes on. Checkpoints of an unfinished job stay for 30 days after its last change.

    Args:
      state: State of the project.
      keep_versions: How many of the newest versions of each model stay; all of them if it is None
        or 0.
      run: Id of the run whose leftovers are returned; empty for all runs, and only then endpoints,
        which belong to no run, are among them.
    """
    pipelines = [job for job in state.pipelines if is_ours(job.labels)]
    jobs = [job for job in state.jobs if is_ours(job.labels) and _is_live(job)]
    # A run has a pipeline job for each attempt, and has ended when all of these have.
    ended = {run_of(job) for job in pipelines} - {run_of(job) for job in pipelines if _is_live(job)}
    orphans = [job for job in jobs if run_of(job) in ended]
    listed = [
        Leftover(kind="job", name=job.name, why="its run has ended", run=run_of(job))
        for job in orphans
    ]
    # The files of a run may still be in use while one of its jobs goes on.
    idle = ended - {run_of(job) for job in jobs}
    in_bucket = {
        run_of(job)
        for job in pipelines
        if job.runtime_config.gcs_output_directory.rstrip("/") == f"{state.bucket}/runs"
    }
    for each in sorted(idle & in_bucket):
        listed += _job_files(state, each)
    listed += _endpoints(state)
    if keep_versions:
        busy = {run_of(job) for job in (*pipelines, *jobs)} - idle
        listed += _versions(state, keep_versions, busy)
    return [leftover for leftover in listed if run in ("", leftover.run)]


def run_of(job: _Job) -> str:
    """Returns the id of the run that a job belongs to.

    It is the job's label `run`. Without one, it is the id of a pipeline job, as for runs that were
    started from a compiled spec, or the display name of another job.
    """
    name = job.name.rpartition("/")[2] if isinstance(job, v1.PipelineJob) else job.display_name
    return job.labels.get("run") or name


def _is_live(job: _Job) -> bool:
    return not re.search("SUCCEEDED|FAILED|CANCELLED|EXPIRED", job.state.name)


# Temporary files, and checkpoints if the job has finished or if nobody has resumed it for long.
def _job_files(state: ProjectState, run: str) -> Iterator[Leftover]:
    job = f"runs/{run}/job/"
    files = state.below(job)
    temporary = [name for name in files if _TEMPORARY.search(name)]
    checkpoints = [
        name for name in files if name.startswith(f"{job}checkpoints/") and name not in temporary
    ]
    why = ""
    if f"{job}DONE.json" in files:
        why = "checkpoints of a finished job"
    elif checkpoints:
        days = (state.now.timestamp() - max(state.files[name].updated_s for name in files)) / 86400
        why = (
            f"checkpoints of a job that ended unfinished {days:.0f} days ago"
            if days >= _UNFINISHED_DAYS
            else ""
        )
    if temporary:
        yield state.leftover(temporary, name=f"{state.bucket}/{job}", why="temporary", run=run)
    if checkpoints and why:
        yield state.leftover(
            checkpoints, name=f"{state.bucket}/{job}checkpoints/", why=why, run=run
        )


# Endpoints of ours that get no requests.
def _endpoints(state: ProjectState) -> Iterator[Leftover]:
    for endpoint in filter(
        lambda each: is_ours(each.labels) and not each.traffic_split, state.endpoints
    ):
        # An endpoint that was made today may be about to get its first version.
        if (days := (state.now - endpoint.create_time).days) >= 1:
            yield Leftover(
                kind="endpoint",
                name=endpoint.name,
                why=f"made {days} days ago, it gets no requests",
            )


# Old versions, unless they have an alias, are deployed, or belong to one of the `busy` runs.
def _versions(state: ProjectState, keep: int, busy: set[str]) -> Iterator[Leftover]:
    models = collections.defaultdict(list)
    for version in sorted(
        filter(name_of, state.versions), key=lambda version: -int(version.version_id)
    ):
        models[name_of(version)].append(version)
    why = f"it is older than the newest {keep}, and has no alias"
    for name, newest_first in models.items():
        for version in newest_first[keep:]:
            run = version.labels.get("run", "")
            if not (version.version_aliases or version.deployed_models or run in busy):
                files = state.below(f"{version.artifact_uri}/".removeprefix(f"{state.bucket}/"))
                name = f"{name_of(version)} {version.version_id}"
                yield state.leftover(files, kind="version", name=name, why=why, run=run)


def delete(project: str, location: str, bucket: str, leftovers: Sequence[Leftover]) -> None:
    """Deletes leftovers; jobs are cancelled. If one cannot be deleted, it goes on with the others.

    Before anything is deleted, `gs://BUCKET/runs/cleanup/<time>.jsonl` gets a line for each
    leftover. At the end the lines have the outcome as `error`: empty after a success, else the
    reason; null for what was not tried, if the process was interrupted.

    Raises:
      UserError: If some could not be deleted, with the reasons; or if the file with the lines
        cannot be written. If that fails at the beginning, nothing is deleted.
      ConnectionError: If the store does not answer when that file is written.
    """
    registry = VertexRegistry(f"vertex://{project}/{location}")
    lines = [{**dataclasses.asdict(leftover), "error": None} for leftover in leftovers]
    now = datetime.datetime.now(datetime.UTC)
    journal = f"{bucket}/{JOURNAL}/{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}.jsonl"

    def write_journal() -> None:
        write_text(journal, "".join(json.dumps(line) + "\n" for line in lines))

    write_journal()
    try:
        for leftover, line in zip(leftovers, lines, strict=True):
            try:
                with refusals(str(registry)):
                    if leftover.kind == "job":
                        _JOBS[leftover.name.split("/")[-2]].get(leftover.name).cancel()
                    elif leftover.kind == "endpoint":
                        aiplatform.Endpoint(leftover.name).delete(force=True)
                    elif leftover.kind == "version":
                        name, number = leftover.name.split(" ")
                        registry.delete(name, number, f"cleanup: {leftover.why}")
                    else:
                        delete_files(f"{bucket}/{name}" for name in leftover.files)
                line["error"] = ""
            except (UserError, ConnectionError) as error:
                line["error"] = str(error)
    finally:
        write_journal()
    if failed := [f"{line['name']}: {line['error']}" for line in lines if line["error"]]:
        raise UserError(f"{len(failed)} items are left: {'; '.join(failed)}")


def cancel_jobs(project: str, location: str, run_id: str) -> list[str]:
    """Cancels the jobs of a run that this program made, if they go on and are not being cancelled.

    Args:
      project: Id of the project.
      location: Region.
      run_id: Name of the run, which is the display name of its jobs.

    Returns:
      The resource names of the jobs that were cancelled.

    Raises:
      ExceptionGroup: After all were tried, with the reasons why some could not be cancelled.
      GoogleAPICallError: If the jobs cannot be listed; none is cancelled then.
    """
    place = {"project": project, "location": location}
    ours = f'{OURS} AND display_name="{run_id}"'
    jobs = [job for kind in _JOBS.values() for job in kind.list(filter=ours, **place)]
    cancelled = []
    failures = []
    for job in jobs:
        if _is_cancellable(job):
            try:
                job.cancel()
                cancelled.append(job.resource_name)
            except GoogleAPICallError as error:
                if _is_cancellable(job):  # Otherwise it has ended by itself meanwhile.
                    failures.append(error)
    if failures:
        raise ExceptionGroup(f"jobs of run {run_id} that may still run and cost money", failures)
    return cancelled


def _is_cancellable(job: _Job) -> bool:
    return _is_live(job) and job.state.name != "JOB_STATE_CANCELLING"

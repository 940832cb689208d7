"""Decides what of a project can go, from its state alone: no request is sent, and nothing deleted.

leftovers(state, keep_versions=5)      # everything of ours that costs and that nobody needs
leftovers(state, run="training-7")     # of one run

Ours is what carries our label, and in the bucket what lies in the folder of a pipeline job that does and has ended, or in a
folder with our record. Of a run that still runs nothing goes, nor anything that has an alias. That a record is missing, or
cannot be understood, never makes anything ours.
"""

import collections
import datetime
import re
from collections.abc import Iterable, Iterator, Mapping

from google.cloud import aiplatform_v1 as v1

from common.google_cloud import is_ours
from common.manifest import FILE as MANIFEST
from components.cleanup.project_state import Leftover, ProjectState
from components.convert.writing.output import is_own
from components.register.store import RECORD, is_record_of
from components.register.vertex import FOLDER, folder_of, name_of

_UNFINISHED_DAYS = 30  # after which checkpoints that a resume could begin with are shown
_RECENT = datetime.timedelta(days=1)  # younger files may belong to something that begins just now
_ENDED = re.compile("SUCCEEDED|FAILED|CANCELLED|EXPIRED")
_TEMPORARY = re.compile(r"\.tmp$|\.partial/|_temp/")
_DATASET = re.compile(rf"(runs/\d+/([^/]+)/(?:.+/)?)(?:{re.escape(MANIFEST)}|\.converting/.+)")


def leftovers(state: ProjectState, *, keep_versions: int | None = None, run: str = "") -> list[Leftover]:
    """All that can go or is to be shown, of one run if that is named; versions only beyond the newest `keep_versions`."""
    pipelines = [job for job in state.pipelines if is_ours(job.labels)]
    jobs = [job for job in state.custom_jobs if _is_live(job) and is_ours(job.labels)]
    running = {run_of(job) for job in pipelines if _is_live(job)}
    ended = {run_of(job) for job in pipelines} - running
    busy = running | {run_of(job) for job in jobs}
    owners = {
        _id(job.name): run_of(job)
        for job in pipelines
        if run_of(job) not in busy and job.runtime_config.gcs_output_directory.rstrip("/") == f"{state.bucket}/runs"
    }
    every = [
        *(_job(state, job) for job in jobs if run_of(job) in ended),
        *(_versions(state, keep_versions, busy) if keep_versions is not None else ()),
        *_unregistered(state, busy),
        *_files(state, sorted(set(owners.values()))),
        *(_datasets(state, owners) if not busy else ()),  # which of them a run has from the cache, nobody knows yet
        *_schedules(state),
    ]
    return [each for each in every if run in ("", each.run)]


def run_of(job: v1.PipelineJob | v1.CustomJob) -> str:
    """The run that a job is of; in a run that a schedule began only the name says it."""
    return job.labels.get("run") or (_id(job.name) if "/pipelineJobs/" in job.name else job.display_name)


def _id(resource_name: str) -> str:
    """The last part of `projects/.../ID`."""
    return resource_name.rpartition("/")[2]


def _is_live(job: v1.PipelineJob | v1.CustomJob) -> bool:
    return not _ENDED.search(job.state.name)


def _job(state: ProjectState, job: v1.CustomJob) -> Leftover:
    machines = sum(max(1, pool.replica_count) for pool in job.job_spec.worker_pool_specs)
    hours = machines * (state.now - job.create_time).total_seconds() / 3600
    cost = f"{machines} machines, {hours:.1f} machine-hours at most by now"
    return Leftover(kind="job", name=job.name, why="its run has ended", cost=cost, run=run_of(job))


def _versions(state: ProjectState, keep: int, busy: set[str]) -> Iterator[Leftover]:
    models = collections.defaultdict(list)
    for version in filter(name_of, state.versions):
        models[name_of(version)].append(version)
    for name, versions in models.items():
        newest_first = sorted(versions, key=lambda version: int(version.version_id), reverse=True)
        for version in newest_first[keep:]:
            run = version.labels.get("run", "")
            folder = f"{folder_of(version)}/".removeprefix(f"{state.bucket}/")
            is_needed = version.version_aliases or version.deployed_models or run in busy
            if folder.startswith(f"{FOLDER}/") and not is_needed:
                is_record = is_record_of(folder, state.records.get(f"{folder}{RECORD}"))
                why = f"it is older than the newest {keep}, and has no alias"
                files = state.below(folder) if is_record else []
                yield _of_files(state, "version", folder, why, run, files, name=f"{name} {version.version_id}")


def _unregistered(state: ProjectState, busy: set[str]) -> Iterator[Leftover]:
    """Folders that this registry began and that no version of it has."""
    known = {str(folder_of(version)) for version in state.versions}
    for name, record in state.records.items():
        folder = name.removesuffix(RECORD)
        if (
            folder.startswith(f"{FOLDER}/")
            and is_record_of(folder, record)
            and record.get("registry") == state.registry
            and f"{state.bucket}/{folder}".rstrip("/") not in known
            and (run := record.get("facts", {}).get("run", "")) not in busy
            and state.age(folder) > _RECENT
        ):
            yield _of_files(state, "files", folder, "no version has this folder", run, state.below(folder))


def _files(state: ProjectState, runs: Iterable[str]) -> Iterator[Leftover]:
    for run in runs:
        job = f"runs/{run}/job/"
        temporary = [name for name in state.below(job) if _TEMPORARY.search(name)]
        if temporary:
            yield _of_files(state, "files", job, "temporary", run, temporary)
        checkpoints = [name for name in state.below(f"{job}checkpoints/") if not _TEMPORARY.search(name)]
        if not checkpoints:
            continue
        if f"{job}DONE.json" in state.files:
            yield _of_files(state, "files", f"{job}checkpoints/", "checkpoints of a finished job", run, checkpoints)
        elif (days := state.age(f"runs/{run}/").days) >= _UNFINISHED_DAYS:
            why = f"checkpoints of a job that ended unfinished {days} days ago"
            unless = "gcloud storage rm --recursive deletes them"
            yield _of_files(state, "files", f"{job}checkpoints/", why, run, checkpoints, unless=unless)


def _datasets(state: ProjectState, owners: Mapping[str, str]) -> Iterator[Leftover]:
    users = [record for name, record in state.records.items() if not name.endswith(f"/{MANIFEST}")]
    if None in users:
        return
    used = {_fingerprint(record.get("identity") or record.get("facts")) for record in users}
    live = " ".join(str(job.job_spec) for job in state.custom_jobs if _is_live(job))
    for folder, job in sorted({match.groups() for name in state.files if (match := _DATASET.fullmatch(name))}):
        fingerprint = _fingerprint(state.records.get(f"{folder}{MANIFEST}"))
        is_half = f"{folder}{MANIFEST}" not in state.files
        names = f"{state.bucket.removeprefix('gs://')}/{folder}".rstrip("/")
        is_needed = names in live or state.age(folder) <= _RECENT or not (is_half or fingerprint)
        if job in owners and not is_needed and fingerprint not in used - {""}:
            why = "half a dataset" if is_half else "no training and no version is of this dataset"
            files = [name for name in state.below(folder) if is_own(name.removeprefix(folder))]
            yield _of_files(state, "dataset", folder, why, owners[job], files)


def _fingerprint(record: object) -> str:
    return str(record.get("fingerprint") or "") if isinstance(record, Mapping) else ""


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


def _of_files(
    state: ProjectState,
    kind: str,
    folder: str,
    why: str,
    run: str,
    names: Iterable[str],
    *,
    name: str = "",
    unless: str = "",
) -> Leftover:
    """Returns a leftover of files in a folder, its record the last; without a name it has the folder's."""
    files = tuple(sorted(names, key=lambda name: name in (f"{folder}{RECORD}", f"{folder}{MANIFEST}")))
    cost = f"{sum(state.files[name].num_bytes for name in files) / 1e9:.3f} GB"
    return Leftover(
        kind=kind, name=name or f"{state.bucket}/{folder}", why=why, cost=cost, run=run, files=files, unless=unless
    )

"""What of a project can go, decided over its state alone: nothing is asked, and nothing done.

leftovers(state, keep_versions=5)      # everything of ours that costs and that nobody needs
leftovers(state, run="training-7")     # of one run

Ours is what carries our label, and in the bucket what lies in the folder of a pipeline job that does and has ended, or in the
folder of a version that does. Of a run that still runs nothing goes, nor anything that has an alias.
"""

import collections
import re
from collections.abc import Iterator, Mapping

from google.cloud import aiplatform_v1 as v1

from components.bucket import is_ours
from components.cleanup.project_state import Leftover, ProjectState
from components.register.vertex import folder_of

_ENDED = re.compile("SUCCEEDED|FAILED|CANCELLED|EXPIRED")
_TEMPORARY = re.compile(r"\.tmp$|\.partial/|_temp/")
_OF_PIPELINE = re.compile(r"runs/\d+/([^/]+)/")
_DATASET = re.compile(r"/manifest\.json$|\.tfrecord$")


def leftovers(state: ProjectState, *, keep_versions: int | None = None, run: str = "") -> list[Leftover]:
    """All that can go, of one run if that is named; versions only beyond the newest `keep_versions` of their model."""
    pipelines = [job for job in state.pipelines if is_ours(job.labels)]
    jobs = [job for job in state.custom_jobs if _is_live(job) and is_ours(job.labels)]
    running = {run_of(job) for job in pipelines if _is_live(job)}
    ended = {run_of(job) for job in pipelines} - running
    busy = running | {run_of(job) for job in jobs}
    owners = {_id(job.name): run_of(job) for job in pipelines if run_of(job) not in busy}
    found = [
        *(_job(state, job) for job in jobs if run_of(job) in ended),
        *(_versions(state, keep_versions, busy) if keep_versions is not None else ()),
        *_files(state, owners),
        *(_datasets(state, owners) if not busy else ()),  # which of them a run has from the cache, nobody knows yet
    ]
    return [each for each in found if run in ("", each.run)]


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
    for version in state.versions:
        models[version.labels["name"]].append(version)
    for name, versions in models.items():
        newest_first = sorted(versions, key=lambda version: int(version.version_id), reverse=True)
        for version in newest_first[keep:]:
            run, folder = version.labels.get("run", ""), str(folder_of(version))
            needed = version.version_aliases or version.deployed_models or run in busy
            if folder.startswith(f"{state.bucket}/models/") and is_ours(version.labels) and not needed:
                files = _below(state, f"{folder.removeprefix(f'{state.bucket}/')}/")
                why = f"it is older than the newest {keep}, and has no alias"
                yield _of_files(state, files, why, "version", f"{name} {version.version_id}", run)


def _files(state: ProjectState, owners: Mapping[str, str]) -> Iterator[Leftover]:
    """Of the runs that own pipeline jobs, by the ids of these."""
    for run in sorted(set(owners.values())):
        job = f"runs/{run}/job/"
        below = _below(state, job)
        groups = {"temporary": (job, [name for name in below if _TEMPORARY.search(name)])}
        if f"{job}DONE.json" in state.files:
            checkpoints = f"{job}checkpoints/"
            rest = [name for name in _below(state, checkpoints) if not _TEMPORARY.search(name)]
            groups["checkpoints of a finished job"] = checkpoints, rest
        for why, (folder, names) in groups.items():
            if names:
                yield _of_files(state, names, why, "files", f"{state.bucket}/{folder}", run)


def _datasets(state: ProjectState, owners: Mapping[str, str]) -> Iterator[Leftover]:
    used = {of for name, of in state.fingerprints.items() if not name.endswith("/manifest.json")}
    for folder in sorted({name.rpartition("/")[0] + "/" for name in state.files if _DATASET.search(name)}):
        whole, of = f"{folder}manifest.json" in state.files, state.fingerprints.get(f"{folder}manifest.json")
        if (run := _owner(folder, owners)) and (not whole or (of and of not in used)):
            why = "no training and no version is of this dataset" if whole else "half a dataset"
            yield _of_files(state, _below(state, folder), why, "dataset", f"{state.bucket}/{folder}", run)


def _owner(name: str, owners: Mapping[str, str]) -> str:
    """The run of the pipeline job that a file or folder of its steps is of; nothing for one that is not of such a job."""
    return owners.get(match[1], "") if (match := _OF_PIPELINE.match(name)) else ""


def _below(state: ProjectState, folder: str) -> list[str]:
    return [name for name in state.files if name.startswith(folder)]


def _of_files(state: ProjectState, files: list[str], why: str, kind: str, name: str, run: str) -> Leftover:
    cost = f"{sum(state.files[file] for file in files) / 1e6:.2f} MB"
    return Leftover(kind=kind, name=name, why=why, cost=cost, run=run, files=tuple(files))

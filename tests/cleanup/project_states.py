"""Generated states of a project, each with what has to go from it: what a run has is drawn together with its fate."""

import dataclasses
import datetime

from google.cloud import aiplatform_v1 as v1
from hypothesis import strategies as st

from common.storage.storage import File
from components.cleanup.project import ProjectState

PARENT, BUCKET = "projects/demo-project/locations/us-central1", "gs://demo"
NOW = datetime.datetime.now(datetime.UTC)
OURS = {"managed_by": "tfrecord-training"}
_labels = st.sampled_from([OURS, OURS, OURS, {}, {"managed_by": "somebody-else"}])
_run = st.fixed_dictionaries(
    {
        "labels": _labels,
        "scheduled": st.booleans(),
        "live": st.lists(st.booleans(), min_size=1, max_size=2),  # of its pipeline jobs
        "jobs": st.lists(st.tuples(st.booleans(), _labels), max_size=2),  # live, labels
        "temporary": st.booleans(),
        "done": st.booleans(),
        "days": st.sampled_from([2, 40]),  # since its job wrote something
    }
)
_version = st.tuples(
    st.sets(st.sampled_from(["champion", "previous", "theirs"])), st.booleans(), st.integers(0, 4)
)
_model = st.tuples(_labels, st.lists(_version, min_size=1, max_size=5), st.integers(0, 4))
# Files of others in and beside the folders that are ours.
_foreign_files = [
    "runs/x/job/a.tmp",
    "runs/x/job/checkpoints/ckpt-1",
    "runs/x/job/DONE.json",
    "runs/training-00/job/a.1.tmp",
    "runs/77/training-00/convert/output/manifest.json",
    "runs/77/training-0/convert/output/notes.txt",
    "models/m0/v3/1/saved_model.pb",
    "models/m0/v4/version.json",
    "jobs/mine/job.json",
]
_foreign_labels = st.sampled_from(
    [{}, {"run": "training-0"}, {"managed_by": "others", "run": "training-0"}]
)
_foreign_job = st.tuples(
    st.sampled_from(["training-0", "training-1-2", "x"]), _foreign_labels, st.booleans()
)


Fates = dict[tuple[str, str], str]  # the run, by kind and name of what has to go


@st.composite
def projects(draw: st.DrawFn) -> tuple[ProjectState, int, Fates]:
    """A state, how many versions of a model are kept, and all that has to go."""
    keep, goes = draw(st.integers(1, 3)), {}
    runs = {f"training-{i}": run for i, run in enumerate(draw(st.lists(_run, max_size=4)))}
    models = draw(st.lists(_model, max_size=3))
    for run in runs.values():
        run["live"] = (
            run["live"][:1] if run["scheduled"] else run["live"]
        )  # nobody submits that again
    running = {name for name, run in runs.items() if run["labels"] == OURS and any(run["live"])}
    busy = running | {name for name, run in runs.items() if (True, OURS) in run["jobs"]}
    days: dict[str, int] = {}  # since a file was written, if not 2
    pipelines, jobs, versions = [], [], []
    # Files of somebody else's in our bucket.
    files = dict.fromkeys(
        ["runs/notes.txt", "other/x.tmp", "models/bert/7/saved_model.pb", "runs/77/other/x.tmp"], 10
    )
    for name, run in runs.items():
        of_run, ours = {} if run["scheduled"] else {"run": name}, run["labels"] == OURS
        for attempt, live in enumerate(run["live"]):
            id = f"{name}-{attempt + 1}" if attempt else name
            pipelines.append(job(f"pipelineJobs/{id}", id, run["labels"] | of_run, live))
        for live, labels in run["jobs"]:
            jobs.append(job(f"customJobs/{len(jobs)}", name, labels | of_run, live))
            if live and labels == OURS and ours and name not in running:
                goes["job", jobs[-1].name] = name
        own, steps, quiet = f"runs/{name}/job/", f"runs/77/{name}/", ours and name not in busy
        files |= dict.fromkeys(
            [f"{own}model/saved_model.pb", f"{own}checkpoints/ckpt-1", f"{steps}report"], 10
        )
        for has, whose, paths in (
            (
                "temporary",
                own,
                [f"{own}a.1.tmp", f"{own}model.partial/a", f"{own}checkpoints/ckpt-2_temp/a"],
            ),
            ("done", f"{own}checkpoints/", [f"{own}DONE.json"]),
        ):
            if run[has]:
                files |= dict.fromkeys(paths, 10)
                goes |= {("files", f"{BUCKET}/{whose}"): name} if quiet else {}
        days |= dict.fromkeys([name for name in files if name.startswith(own)], run["days"])
        if quiet and not run["done"] and run["days"] >= 30:
            goes["files", f"{BUCKET}/{own}checkpoints/"] = name
    for i, (labels, kinds, default) in enumerate(models):
        left = {"champion", "previous", "theirs"}
        for n, (aliases, deployed, run) in enumerate(kinds):
            aliases = (aliases & left) | ({"default"} if n == default % len(kinds) else set())
            left, folder, of = left - aliases, f"models/m{i}/{n:016x}", f"training-{run}"
            files |= dict.fromkeys([f"{folder}/1/saved_model.pb", f"{folder}/version.json"], 10)
            versions.append(
                version(
                    f"m{i}", n + 1, labels | {"run": of}, f"{BUCKET}/{folder}", aliases, deployed
                )
            )
            if (
                labels == OURS
                and n < len(kinds) - keep
                and not aliases
                and not deployed
                and of not in busy
            ):
                goes["version", f"m{i} {n + 1}"] = of
    lists = {"pipelines": pipelines, "jobs": jobs, "versions": versions}
    stored = {name: stored_file(days.get(name, 2), size) for name, size in files.items()}
    about = {"bucket": BUCKET, "now": NOW, "files": stored}
    return ProjectState(**about, **{name: tuple(each) for name, each in lists.items()}), keep, goes


@st.composite
def with_foreign_things(draw: st.DrawFn, state: ProjectState) -> ProjectState:
    """The same with files, jobs and versions of others that look like ours."""
    names = draw(st.sets(st.sampled_from(_foreign_files)))
    jobs = draw(st.lists(_foreign_job))
    foreign = {
        "pipelines": [job(f"pipelineJobs/{id}", id, labels, live) for id, labels, live in jobs],
        "jobs": [
            job(f"customJobs/9{i}", id, labels, live) for i, (id, labels, live) in enumerate(jobs)
        ],
        "versions": [
            version("m0", 9 + i, labels, f"{BUCKET}/models/m0/v3")
            for i, (_, labels, _) in enumerate(jobs)
        ],
    }
    # Of ours, with files in another bucket.
    foreign["pipelines"].append(
        job("pipelineJobs/x", "x", OURS | {"run": "x"}, False, "gs://another")
    )
    return dataclasses.replace(
        state,
        files={**state.files, **{name: stored_file(900) for name in names}},
        **{name: (*each, *getattr(state, name)) for name, each in foreign.items()},
    )


def stored_file(days: int, num_bytes: int = 10) -> File:
    """A file that was written some days ago, and an hour."""
    updated = NOW - datetime.timedelta(days=days, hours=1)
    return File(path="", num_bytes=num_bytes, updated_s=updated.timestamp())


def job(
    name: str, run: str, labels: dict[str, str], live: bool, bucket: str = BUCKET
) -> v1.PipelineJob | v1.CustomJob:
    """A pipeline job, or a custom job of two machines, by its name below the project's."""
    about = {"name": f"{PARENT}/{name}", "display_name": run, "labels": labels, "create_time": NOW}
    if name.startswith("pipelineJobs/"):
        config = v1.PipelineJob.RuntimeConfig(gcs_output_directory=f"{bucket}/runs")
        state = f"PIPELINE_STATE_{'RUNNING' if live else 'FAILED'}"
        return v1.PipelineJob(state=state, runtime_config=config, **about)
    spec = {
        "worker_pool_specs": [
            {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 2}
        ]
    }
    return v1.CustomJob(
        state=f"JOB_STATE_{'PENDING' if live else 'SUCCEEDED'}", job_spec=spec, **about
    )


def version(
    model: str, number: int, labels: dict[str, str], folder: str, aliases=(), deployed=False
) -> v1.Model:
    """A version of a model, with its files in a folder of its own."""
    return v1.Model(
        name=f"{PARENT}/models/m-{model}",
        version_id=str(number),
        labels=labels | {"name": model},
        artifact_uri=folder,
        version_aliases=sorted(aliases),
        deployed_models=[v1.DeployedModelRef(endpoint="e", deployed_model_id="1")] * deployed,
        create_time=NOW,
    )

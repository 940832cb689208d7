"""Generated states of a project, each with what has to go from it: what a run has is drawn together with its fate."""

import datetime

from google.cloud import aiplatform_v1 as v1
from hypothesis import strategies as st

from components.cleanup.project_state import ProjectState

PARENT, BUCKET, REGISTRY = (
    "projects/demo-project/locations/us-central1",
    "gs://demo",
    "vertex://demo-project/us-central1",
)
NOW = datetime.datetime.now(datetime.UTC)
OURS = {"managed_by": "tfrecord-training"}
_labels = st.sampled_from([OURS, OURS, OURS, {}, {"managed_by": "somebody-else"}])
_data = st.sampled_from(["", "a", "b", "c"])
_run = st.fixed_dictionaries(
    {
        "labels": _labels,
        "scheduled": st.booleans(),
        "live": st.lists(st.booleans(), min_size=1, max_size=2),  # of its pipeline jobs
        "jobs": st.lists(st.tuples(st.booleans(), _labels), max_size=2),  # live, labels
        "temporary": st.booleans(),
        "done": st.booleans(),
        "trained_on": _data,
        "dataset": st.sampled_from([None, "half", "a", "b", "c"]),
    }
)
_version = st.tuples(
    st.sets(st.sampled_from(["champion", "previous", "theirs"])), st.booleans(), st.integers(0, 4), _data
)
_model = st.tuples(_labels, st.lists(_version, min_size=1, max_size=5), st.integers(0, 4))


Fates = dict[tuple[str, str], str]  # the run, by kind and name of what has to go


@st.composite
def projects(draw: st.DrawFn) -> tuple[ProjectState, int, Fates]:
    """A state, how many versions of a model are kept, and all that has to go."""
    keep, goes = draw(st.integers(1, 3)), {}
    runs = {f"training-{i}": run for i, run in enumerate(draw(st.lists(_run, max_size=4)))}
    models = draw(st.lists(_model, max_size=3))
    for run in runs.values():
        run["live"] = run["live"][:1] if run["scheduled"] else run["live"]  # nobody submits that again
    running = {name for name, run in runs.items() if run["labels"] == OURS and any(run["live"])}
    busy = running | {name for name, run in runs.items() if (True, OURS) in run["jobs"]}
    used = {run["trained_on"] for run in runs.values()} | {data for _, versions, _ in models for *_, data in versions}
    pipelines, jobs, versions = [], [], []
    others = "runs/77/other/convert/output/manifest.json"  # a pipeline of somebody else's in our bucket
    not_ours = ["runs/notes.txt", "other/x.tmp", "models/bert/7/saved_model.pb", others]
    files, data_of = dict.fromkeys(not_ours, 10), {others: "d"}
    for name, run in runs.items():
        told, ours = {} if run["scheduled"] else {"run": name}, run["labels"] == OURS
        for attempt, live in enumerate(run["live"]):
            id = f"{name}-{attempt + 1}" if attempt else name
            pipelines.append(job(f"pipelineJobs/{id}", id, run["labels"] | told, live))
        for live, labels in run["jobs"]:
            jobs.append(job(f"customJobs/{len(jobs)}", name, labels | told, live))
            if live and labels == OURS and ours and name not in running:
                goes["job", jobs[-1].name] = name
        own, steps, quiet = f"runs/{name}/job/", f"runs/77/{name}/", ours and name not in busy
        files |= dict.fromkeys([f"{own}model/saved_model.pb", f"{own}checkpoints/ckpt-1", f"{steps}report"], 10)
        if run["trained_on"]:
            files[f"{own}job.json"], data_of[f"{own}job.json"] = 10, run["trained_on"]
        for has, whose, paths in (
            ("temporary", own, [f"{own}a.1.tmp", f"{own}model.partial/a", f"{own}checkpoints/ckpt-2_temp/a"]),
            ("done", f"{own}checkpoints/", [f"{own}DONE.json"]),
        ):
            if run[has]:
                files |= dict.fromkeys(paths, 10)
                goes |= {("files", f"{BUCKET}/{whose}"): name} if quiet else {}
        if of := run["dataset"]:
            folder = f"{steps}convert/output/"
            files[f"{folder}train-00000.tfrecord"] = 10
            if of != "half":
                files[f"{folder}manifest.json"], data_of[f"{folder}manifest.json"] = 10, of
            if quiet and not busy and of not in used:
                goes["dataset", f"{BUCKET}/{folder}"] = name
    for i, (labels, kinds, default) in enumerate(models):
        left = {"champion", "previous", "theirs"}
        for n, (aliases, deployed, run, data) in enumerate(kinds):
            aliases = (aliases & left) | ({"default"} if n == default % len(kinds) else set())
            left, folder, of = left - aliases, f"models/m{i}/{n:016x}", f"training-{run}"
            files |= dict.fromkeys([f"{folder}/1/saved_model.pb", f"{folder}/version.json"], 10)
            data_of |= {f"{folder}/version.json": data} if data else {}
            versions.append(version(f"m{i}", n + 1, labels | {"run": of}, f"{BUCKET}/{folder}", aliases, deployed))
            if labels == OURS and n < len(kinds) - keep and not aliases and not deployed and of not in busy:
                goes["version", f"m{i} {n + 1}"] = of
    lists = {"pipelines": pipelines, "custom_jobs": jobs, "versions": versions}
    told = {"files": files, "fingerprints": data_of}
    about = {"registry": REGISTRY, "bucket": BUCKET, "now": NOW}
    return ProjectState(**about, **told, **{name: tuple(each) for name, each in lists.items()}), keep, goes


def job(name: str, run: str, labels: dict[str, str], live: bool) -> v1.PipelineJob | v1.CustomJob:
    """A pipeline job, or a custom job of two machines, by its name below the project's."""
    about = {"name": f"{PARENT}/{name}", "display_name": run, "labels": labels, "create_time": NOW}
    if name.startswith("pipelineJobs/"):
        return v1.PipelineJob(state=f"PIPELINE_STATE_{'RUNNING' if live else 'FAILED'}", **about)
    spec = {"worker_pool_specs": [{"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 2}]}
    return v1.CustomJob(state=f"JOB_STATE_{'PENDING' if live else 'SUCCEEDED'}", job_spec=spec, **about)


def version(model: str, number: int, labels: dict[str, str], folder: str, aliases=(), deployed=False) -> v1.Model:
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

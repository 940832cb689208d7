"""Generated states of a project, each with what has to go from it: what a run has is drawn together with its fate."""

import dataclasses
import datetime

from google.cloud import aiplatform_v1 as v1
from hypothesis import strategies as st

from common.storage.storage import File
from components.cleanup.project import ProjectState
from components.register.registry import marked

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
        "days": st.sampled_from([2, 40]),  # since its job wrote something
        "dataset_days": st.sampled_from([0, 2]),
    }
)
_version = st.tuples(
    st.sets(st.sampled_from(["champion", "previous", "theirs"])), st.booleans(), st.integers(0, 4), _data
)
_model = st.tuples(_labels, st.lists(_version, min_size=1, max_size=5), st.integers(0, 4))
_unregistered = st.lists(st.tuples(st.sampled_from([REGISTRY, "vertex://others/us-central1"]), st.sampled_from([0, 2])))
# Files of others, with their records, in and beside the folders that are ours.
_foreign_files = {
    "runs/x/job/a.tmp": None,
    "runs/x/job/checkpoints/ckpt-1": None,
    "runs/x/job/DONE.json": None,
    "runs/training-00/job/a.1.tmp": None,
    "runs/77/training-00/convert/output/manifest.json": {"fingerprint": "f"},
    "runs/77/training-0/convert/output/notes.txt": None,
    "runs/77/training-0/other/train-00000-of-00001.tfrecord": None,
    "models/m0/v3/1/saved_model.pb": None,
    "models/m0/v4/version.json": {"facts": {}, "registry": REGISTRY} | marked("models/m0/copied-from-here"),
    "models/m0-lookalike/v3/version.json": {"facts": {}, "managed_by": "others", "folder": "m0-lookalike/v3"},
    "jobs/mine/job.json": {"fingerprint": "f"},
}
_foreign_labels = st.sampled_from([{}, {"run": "training-0"}, {"managed_by": "others", "run": "training-0"}])
_foreign_job = st.tuples(st.sampled_from(["training-0", "training-1-2", "x"]), _foreign_labels, st.booleans())


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
    days: dict[str, int] = {}  # since a file was written, if not 2
    used = {run["trained_on"] for run in runs.values()} | {data for _, versions, _ in models for *_, data in versions}
    pipelines, jobs, versions = [], [], []
    others = "runs/77/other/convert/output/manifest.json"  # a pipeline of somebody else's in our bucket
    not_ours = ["runs/notes.txt", "other/x.tmp", "models/bert/7/saved_model.pb", others]
    files, records = dict.fromkeys(not_ours, 10), {others: {"fingerprint": "d"}}
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
            files[f"{own}job.json"] = 10
            records[f"{own}job.json"] = {"identity": {"fingerprint": run["trained_on"]}}
        for has, whose, paths in (
            ("temporary", own, [f"{own}a.1.tmp", f"{own}model.partial/a", f"{own}checkpoints/ckpt-2_temp/a"]),
            ("done", f"{own}checkpoints/", [f"{own}DONE.json"]),
        ):
            if run[has]:
                files |= dict.fromkeys(paths, 10)
                goes |= {("files", f"{BUCKET}/{whose}"): name} if quiet else {}
        days |= dict.fromkeys([name for name in files if name.startswith(own)], run["days"])
        if of := run["dataset"]:
            folder = f"{steps}convert/output/"
            record = f"{folder}{'.converting/plan' if of == 'half' else 'manifest.json'}"
            files |= dict.fromkeys([f"{folder}train-00000-of-00001.tfrecord", record], 10)
            days |= dict.fromkeys([name for name in files if name.startswith(folder)], run["dataset_days"])
            records |= {record: {"fingerprint": of}} if of != "half" else {}
            if quiet and not busy and of not in used and run["dataset_days"]:
                goes["dataset", f"{BUCKET}/{folder}"] = name
    for i, (labels, kinds, default) in enumerate(models):
        left = {"champion", "previous", "theirs"}
        for n, (aliases, deployed, run, data) in enumerate(kinds):
            aliases = (aliases & left) | ({"default"} if n == default % len(kinds) else set())
            left, folder, of = left - aliases, f"models/m{i}/{n:016x}", f"training-{run}"
            files |= dict.fromkeys([f"{folder}/1/saved_model.pb", f"{folder}/version.json"], 10)
            facts = {"fingerprint": data, "run": of}
            records[f"{folder}/version.json"] = {"facts": facts, "registry": REGISTRY} | marked(folder)
            versions.append(version(f"m{i}", n + 1, labels | {"run": of}, f"{BUCKET}/{folder}", aliases, deployed))
            if labels == OURS and n < len(kinds) - keep and not aliases and not deployed and of not in busy:
                goes["version", f"m{i} {n + 1}"] = of
    for i, (registry, age) in enumerate(draw(_unregistered)):
        folder = f"models/m0/unregistered-{i}/"
        files |= dict.fromkeys([f"{folder}version.json", f"{folder}1/saved_model.pb"], 10)
        days |= dict.fromkeys([f"{folder}version.json", f"{folder}1/saved_model.pb"], age)
        records[f"{folder}version.json"] = {"facts": {}, "registry": registry} | marked(folder)
        if registry == REGISTRY and age:
            goes["files", f"{BUCKET}/{folder}"] = ""
    lists = {"pipelines": pipelines, "custom_jobs": jobs, "versions": versions}
    stored = {name: stored_file(days.get(name, 2), size) for name, size in files.items()}
    about = {"registry": REGISTRY, "bucket": BUCKET, "now": NOW, "files": stored, "records": records}
    return ProjectState(**about, **{name: tuple(each) for name, each in lists.items()}), keep, goes


@st.composite
def with_foreign_things(draw: st.DrawFn, state: ProjectState) -> ProjectState:
    """The same with files, jobs, schedules and versions of others that look like ours."""
    names = draw(st.sets(st.sampled_from(sorted(_foreign_files))))
    jobs = draw(st.lists(_foreign_job))
    foreign = {
        "pipelines": [job(f"pipelineJobs/{id}", id, labels, live) for id, labels, live in jobs],
        "custom_jobs": [job(f"customJobs/9{i}", id, labels, live) for i, (id, labels, live) in enumerate(jobs)],
        "schedules": [schedule(f"9{i}", labels) for i, (_, labels, _) in enumerate(jobs)],
        "versions": [version("m0", 9 + i, labels, f"{BUCKET}/models/m0/v3") for i, (_, labels, _) in enumerate(jobs)],
    }
    # Of ours, with files in another bucket.
    foreign["pipelines"].append(job("pipelineJobs/x", "x", OURS | {"run": "x"}, False, "gs://another"))
    return dataclasses.replace(
        state,
        files={**state.files, **{name: stored_file(900) for name in names}},
        records=state.records | {name: _foreign_files[name] for name in names if _foreign_files[name]},
        **{name: (*each, *getattr(state, name)) for name, each in foreign.items()},
    )


def stored_file(days: int, num_bytes: int = 10) -> File:
    """A file that was written some days ago, and an hour."""
    updated = NOW - datetime.timedelta(days=days, hours=1)
    return File(path="", num_bytes=num_bytes, updated_s=updated.timestamp())


def schedule(number: str, labels: dict[str, str]) -> v1.Schedule:
    """A schedule whose runs have these labels."""
    run = {"pipeline_job": v1.PipelineJob(labels=labels)}
    about = {"name": f"{PARENT}/schedules/{number}", "cron": "0 3 * * 1", "state": "ACTIVE"}
    return v1.Schedule(create_pipeline_job_request=run, started_run_count=7, **about)


def job(name: str, run: str, labels: dict[str, str], live: bool, bucket: str = BUCKET) -> v1.PipelineJob | v1.CustomJob:
    """A pipeline job, or a custom job of two machines, by its name below the project's."""
    about = {"name": f"{PARENT}/{name}", "display_name": run, "labels": labels, "create_time": NOW}
    if name.startswith("pipelineJobs/"):
        config = v1.PipelineJob.RuntimeConfig(gcs_output_directory=f"{bucket}/runs")
        state = f"PIPELINE_STATE_{'RUNNING' if live else 'FAILED'}"
        return v1.PipelineJob(state=state, runtime_config=config, **about)
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

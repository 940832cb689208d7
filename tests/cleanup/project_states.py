"""Generated states of a project, each with what has to go from it.

What a run has is drawn together with its fate.
"""

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
        "days": st.sampled_from([29, 30]),  # since its job wrote something
    }
)
_version = st.tuples(
    st.sets(st.sampled_from(["champion", "previous", "theirs"])), st.booleans(), st.integers(0, 1)
)
_model = st.tuples(_labels, st.lists(_version, min_size=1, max_size=5), st.integers(0, 4))
# What looks like ours: files of others in and beside the folders that are ours, and jobs.
_foreign_files = st.sampled_from(
    """runs/notes.txt
other/x.tmp
models/bert/7/saved_model.pb
runs/77/other/x.tmp
runs/x/job/a.tmp
runs/x/job/checkpoints/ckpt-1
runs/x/job/DONE.json
runs/training-00/job/a.1.tmp
runs/77/training-00/convert/output/manifest.json
runs/77/training-0/convert/output/notes.txt
models/m0/v3/1/saved_model.pb
models/m0/v4/version.json
jobs/mine/job.json""".splitlines()
)
_foreign_job = st.tuples(
    st.sampled_from(["training-0", "training-1-2", "x"]),
    st.sampled_from([{}, {"run": "training-0"}, {"managed_by": "others", "run": "training-0"}]),
    st.booleans(),
)


@st.composite
def projects(draw):
    """A state, how many versions of a model are kept, and all that has to go.

    That is the run by kind and name of a thing.
    """
    keep, goes = draw(st.integers(1, 3)), {}
    runs = {
        f"training-{i}": run for i, run in enumerate(draw(st.lists(_run, min_size=1, max_size=4)))
    }
    busy = set()
    # Of ours, with files in another bucket.
    pipelines = [job("pipelineJobs/x", "x", OURS | {"run": "x"}, False, "gs://another")]
    jobs, versions = [], []
    days = dict.fromkeys(draw(st.sets(_foreign_files)), 900)  # since a file was written, by name
    for i, (id, labels, live) in enumerate(draw(st.lists(_foreign_job, max_size=2))):
        pipelines.append(job(f"pipelineJobs/{id}", id, labels, live))
        jobs.append(job(f"customJobs/9{i}", id, labels, live))
        versions.append(version("m0", 9 + i, labels, f"{BUCKET}/models/m0/v3"))
    for name, run in runs.items():
        # Nobody submits a run of a schedule again.
        lives = run["live"][:1] if run["scheduled"] else run["live"]
        of_run, ours = {} if run["scheduled"] else {"run": name}, run["labels"] == OURS
        for attempt, live in enumerate(lives):
            id = f"{name}-{attempt + 1}" if attempt else name
            pipelines.append(job(f"pipelineJobs/{id}", id, run["labels"] | of_run, live))
        is_running = ours and any(lives)
        if is_running or (True, OURS) in run["jobs"]:
            busy.add(name)
        for live, labels in run["jobs"]:
            jobs.append(job(f"customJobs/{len(jobs)}", name, labels | of_run, live))
            if live and labels == OURS and ours and not is_running:
                goes["job", jobs[-1].name] = name
        own, is_quiet = f"runs/{name}/job/", ours and name not in busy
        files = ["model/saved_model.pb", "checkpoints/ckpt-1"]
        if run["temporary"]:
            files += ["a.1.tmp", "model.partial/a", "checkpoints/ckpt-2_temp/a"]
        if run["temporary"] and is_quiet:
            goes["files", f"{BUCKET}/{own}"] = name
        if run["done"]:
            files.append("DONE.json")
        if is_quiet and (run["done"] or run["days"] >= 30):
            goes["files", f"{BUCKET}/{own}checkpoints/"] = name
        days |= dict.fromkeys([f"{own}{file}" for file in files], run["days"])
        days[f"runs/77/{name}/report"] = 2
    for i, (labels, kinds, default) in enumerate(draw(st.lists(_model, max_size=3))):
        left = {"champion", "previous", "theirs"}
        for n, (aliases, deployed, run) in enumerate(kinds):
            aliases = (aliases & left) | ({"default"} if n == default % len(kinds) else set())
            left, folder, of = left - aliases, f"models/m{i}/{n:016x}", f"training-{run}"
            days |= {f"{folder}/1/saved_model.pb": 2, f"{folder}/version.json": 2}
            place = f"{BUCKET}/{folder}"
            made = version(f"m{i}", n + 1, labels | {"run": of}, place, aliases, deployed)
            versions.append(made)
            is_needed = aliases or deployed or of in busy or n >= len(kinds) - keep
            if labels == OURS and not is_needed:
                goes["version", f"m{i} {n + 1}"] = of
    state = ProjectState(
        bucket=BUCKET,
        now=NOW,
        files={name: stored_file(since) for name, since in days.items()},
        pipelines=pipelines,
        jobs=jobs,
        versions=versions,
    )
    return state, keep, goes


def stored_file(days):
    """A file that was written some days ago, and an hour."""
    updated = NOW - datetime.timedelta(days=days, hours=1)
    return File(path="", num_bytes=10, updated_s=updated.timestamp())


def job(name, run, labels, live, bucket=BUCKET):
    """A pipeline job, or a custom job of two machines, by its name below the project's."""
    about = {"name": f"{PARENT}/{name}", "display_name": run, "labels": labels, "create_time": NOW}
    if name.startswith("pipelineJobs/"):
        config = v1.PipelineJob.RuntimeConfig(gcs_output_directory=f"{bucket}/runs")
        state = f"PIPELINE_STATE_{'RUNNING' if live else 'FAILED'}"
        return v1.PipelineJob(state=state, runtime_config=config, **about)
    pool = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 2}
    state = f"JOB_STATE_{'PENDING' if live else 'SUCCEEDED'}"
    return v1.CustomJob(state=state, job_spec={"worker_pool_specs": [pool]}, **about)


def version(model, number, labels, folder, aliases=(), deployed=False):
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

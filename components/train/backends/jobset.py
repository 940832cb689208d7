"""Translates a job into a JobSet of Kubernetes, with one Indexed Job for each pool.

    manifest = plan_jobset(job, image="REF")  # `kubectl apply -f` takes it, as JSON or YAML.

Kubernetes itself restarts the replicas then, by these rules:

| end of a replica | consequence |
| --- | --- |
| exit code 0 of the chief | the JobSet is completed, and the other replicas are stopped |
| exit code 2 | the JobSet fails |
| 143, or its node is taken away | all start again, without a bound |
| of a worker beside parameter servers | its own Job starts it again, `max_restarts` times |
| of an evaluator | its own Job starts it again, without a bound |
| any other exit code | all start again, `max_restarts` times |

No code of ours has to be in the container: Kubernetes puts the index of a replica into the text of
its TF_CONFIG. The manifest's own text is `templates/jobset.yaml.jinja`.
"""

import hashlib
import json
from typing import Any

import yaml

from common.google_cloud import MANAGED_BY
from components.train.backends.backend import Job
from trainer.cluster.member import POOL_GPUS, POOL_ROLES

CONTAINER = "trainer"  # Name of the container.
_PORT = 2222
_INDEX = "JOB_COMPLETION_INDEX"


def jobset_name(job_dir: str) -> str:
    """Returns the name of the JobSet of a job directory, which is always the same.

    Slashes at the end of `job_dir` make no difference. The name has 21 characters, so that names of
    pods do not exceed the 63 that Kubernetes allows.
    """
    return f"training-{hashlib.sha256(job_dir.rstrip('/').encode()).hexdigest()[:12]}"


def plan_jobset(
    job: Job,
    *,
    image: str,
    namespace: str | None = None,
    queue: str | None = None,
    claim: str | None = None,
) -> dict[str, Any]:
    """Returns the manifest of the JobSet that runs a job.

    Args:
      job: Job to run.
      image: Container image of every replica.
      namespace: Namespace of the JobSet; None for that of the client.
      queue: Name of a local queue of Kueue, or None.
      claim: Volume claim and the path at which all pods see it, `NAME:PATH`, or None.
    """
    from common.pages import templates  # Jinja takes a while, and other back ends need none.

    cluster = job.cluster
    program = job.program
    name = jobset_name(program.job_dir)
    volume, _, path = (claim or "").partition(":")
    template = templates("components.train").get_template("jobset.yaml.jinja")
    jobset = yaml.safe_load(
        template.render(
            name=name,
            job_dir=program.job_dir,
            label=MANAGED_BY,
            namespace=namespace,
            queue=queue,
            cluster=cluster,
            claim=volume,
            path=path,
            container=CONTAINER,
            image=image,
        )
    )
    addresses = {
        role: [f"{name}-{role}-0-{i}.{name}:{_PORT}" for i in range(pool.replicas)]
        for role, pool in cluster.pools.items()
        # TensorFlow would wait for ever for an evaluator in the training cluster.
        if role != "evaluator"
    }
    jobs = jobset["spec"]["replicatedJobs"]
    for planned, (role, pool) in zip(jobs, cluster.pools.items(), strict=True):
        variables = {**program.env, POOL_ROLES: ",".join(cluster.pools)}
        if pool.gpus:
            variables[POOL_GPUS] = str(pool.gpus)
        env = [{"name": key, "value": _literal(value)} for key, value in variables.items()]
        if cluster.replicas > 1:
            config = json.dumps({"cluster": addresses, "task": {"type": role, "index": _INDEX}})
            config = config.replace(f'"{_INDEX}"', f"$({_INDEX})")
            env.append({"name": "TF_CONFIG", "value": config})
        spec = planned["template"]["spec"]
        container = spec["template"]["spec"]["containers"][0]
        container["command"] = [_literal(word) for word in (*program.command, *program.args)]
        container["env"] += env
        for patch in (cluster.pod_template, pool.pod_template):
            spec["template"] = patched(spec["template"], patch or {})
    return jobset


def patched(base: Any, patch: Any) -> Any:
    """Returns a part of a manifest with a patch merged into it; changes neither.

    Mappings are merged key by key. Of lists of mappings, items with the same `mountPath` or `name`
    are merged, and others are added. Any other value of the patch replaces that of the base.
    """
    if isinstance(base, dict) and isinstance(patch, dict):
        return base | {key: patched(base.get(key), value) for key, value in patch.items()}
    are_lists = isinstance(base, list) and isinstance(patch, list)
    if not are_lists or not all(isinstance(item, dict) for item in base + patch):
        return patch
    items = {_identity(item): item for item in base}
    for item in patch:
        items[_identity(item)] = patched(items.get(_identity(item)), item)
    return list(items.values())


def _identity(item: dict[str, Any]) -> str:
    return str(item.get("mountPath") or item.get("name") or item)


def _literal(text: str) -> str:
    """Returns a text in which Kubernetes replaces no `$(NAME)`."""
    return text.replace("$", "$$")

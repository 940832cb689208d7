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
its TF_CONFIG. What all JobSets have in common is in `jobset.yaml`.
"""

import copy
import hashlib
import json
import pathlib
import re
from typing import Any

import yaml

from common.google_cloud import MANAGED_BY
from components.train.backends.backend import Job
from trainer.cluster.member import POOL_GPUS, POOL_ROLES

CONTAINER = "trainer"  # Name of the container.
_PORT = 2222
_INDEX = "JOB_COMPLETION_INDEX"
_UNBOUNDED = 2**31 - 1


def jobset_name(job_dir: str) -> str:
    """Returns the name of the JobSet of a job directory, which is always the same.

    It has 21 characters, so that names of pods do not exceed the 63 that Kubernetes allows.
    """
    return f"training-{hashlib.sha256(job_dir.rstrip('/').encode()).hexdigest()[:12]}"


def plan_jobset(
    job: Job,
    *,
    image: str,
    queue: str | None = None,
    claim: str | None = None,
) -> dict[str, Any]:
    """Returns the manifest of the JobSet that runs a job.

    Args:
      job: Job to run.
      image: Container image of every replica.
      queue: Name of a local queue of Kueue, or None.
      claim: Volume claim and the path at which all pods see it, `NAME:PATH`, or None.
    """
    cluster = job.cluster
    program = job.program
    name = jobset_name(program.job_dir)
    max_restarts = cluster.scheduling.max_restarts
    text = pathlib.Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    jobset, common = yaml.safe_load_all(text)
    # Roles that their own Jobs restart, and how often.
    own_restarts = {"evaluator": _UNBOUNDED}
    if cluster.strategy == "parameter_server":
        own_restarts["worker"] = max_restarts
    addresses = {
        role: [f"{name}-{role}-0-{i}.{name}:{_PORT}" for i in range(pool.replicas)]
        for role, pool in cluster.pools.items()
        # TensorFlow would wait for ever for an evaluator in the training cluster.
        if role != "evaluator"
    }
    jobs = []
    for role, pool in cluster.pools.items():
        variables = {**program.env, "PYTHONUNBUFFERED": "1", POOL_ROLES: ",".join(cluster.pools)}
        if pool.gpus:
            variables[POOL_GPUS] = str(pool.gpus)
        env = {key: _literal(value) for key, value in variables.items()}
        if cluster.replicas > 1:
            config = json.dumps({"cluster": addresses, "task": {"type": role, "index": _INDEX}})
            env["TF_CONFIG"] = config.replace(f'"{_INDEX}"', f"$({_INDEX})")
        container: dict[str, Any] = {
            "name": CONTAINER,
            "image": image,
            "command": [_literal(word) for word in (*program.command, *program.args)],
            "env": [{"name": key, "value": value} for key, value in env.items()],
            "resources": {"limits": {"nvidia.com/gpu": pool.gpus} if pool.gpus else {}},
        }
        # A node keeps a part of a core for itself.
        if cores := re.search(r"-(\d+)$", pool.machine or ""):
            container["resources"]["requests"] = {"cpu": max(1, int(cores[1]) - 1)}
        pod: dict[str, Any] = {"containers": [container]}
        if claim:
            volume, _, path = claim.partition(":")
            pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": volume}}]
            container["volumeMounts"] = [{"name": "data", "mountPath": path}]
        spec: dict[str, Any] = {
            "completions": pool.replicas,
            "parallelism": pool.replicas,
            "backoffLimit": own_restarts.get(role, 0),
            "template": {"spec": pod},
        }
        if cluster.scheduling.timeout_s:
            spec["activeDeadlineSeconds"] = cluster.scheduling.timeout_s
        planned = patched(copy.deepcopy(common), {"name": role, "template": {"spec": spec}})
        spec = planned["template"]["spec"]
        for patch in (cluster.pod_template, pool.pod_template):
            spec["template"] = patched(spec["template"], patch or {})
        if role == "evaluator":
            del spec["podFailurePolicy"]
        elif role in own_restarts:
            # Preemptions do not count, and the others go on.
            for rule in spec["podFailurePolicy"]["rules"][1:]:
                rule["action"] = "Ignore"
        jobs.append(planned)
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    jobset["metadata"] = {
        "name": name,
        "labels": {**labels, **dict([MANAGED_BY])},
        "annotations": {"training/job-dir": program.job_dir},
    }
    policy = jobset["spec"]["failurePolicy"]
    policy["maxRestarts"] = max_restarts
    if "worker" not in own_restarts:
        del policy["rules"][-1]  # It is about workers that their own Job restarts.
    jobset["spec"]["replicatedJobs"] = jobs
    return jobset


def patched(base: Any, patch: Any) -> Any:
    """Returns a part of a manifest with a patch merged into it; changes neither.

    Mappings are merged key by key. Of lists of mappings, items with the same `mountPath` or `name`
    are merged, and others are added. Any other value of the patch replaces that of the base.
    """
    if isinstance(base, dict) and isinstance(patch, dict):
        return base | {key: patched(base.get(key), value) for key, value in patch.items()}
    if not (isinstance(base, list) and isinstance(patch, list)):
        return patch
    if not all(isinstance(item, dict) for item in base + patch):
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

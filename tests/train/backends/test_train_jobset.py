"""Tests of JobSets as they are planned, without a cluster; tests/kubernetes runs them."""

import pytest
import yaml

from components.train.backends.backend import Job
from components.train.backends.jobset import jobset_name, plan_jobset
from components.train.backends.program import Program
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import load_cluster
from tests.kubernetes.expand import expand
from tests.root import ROOT
from trainer.cluster.member import from_environment

CLUSTERS = sorted((ROOT / "clusters").glob("*.yaml"))


def planned(cluster, command=("python", "mine.py"), job_dir="gs://b/j", **settings):
    program = Program(command=command, env={"LEVEL": "$(HOME)"}, job_dir=job_dir)
    return plan_jobset(Job(cluster=cluster, program=program), image="i", **settings)


def containers(jobset):
    """Yields role, job and container of each pool."""
    for job in jobset["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        yield job["name"], spec, spec["template"]["spec"]["containers"][0]


def environment(container, index):
    """Returns the variables of a replica as Kubernetes sets them."""
    variables = {}
    for variable in container["env"]:
        variables[variable["name"]] = expand(variable.get("value", str(index)), variables)
    return variables


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_replica_finds_itself_in_cluster(path):
    """Every replica reads its role, index and addresses, and runs the command as it was typed."""
    cluster, command = load_cluster(path), ["$(HOME)", "$$(LEVEL) $", "'a b' \n\"", ""]
    jobset = planned(cluster, tuple(command), "gs://b/ä b/$(HOME)" * 99)
    members = []
    for role, spec, container in containers(jobset):
        for index in {0, spec["completions"] - 1}:
            variables = environment(container, index)
            me = from_environment(variables)
            assert (me.role, me.index, variables["LEVEL"]) == (role, index, "$(HOME)")
            assert [expand(word, variables) for word in container["command"]] == command
            pod = f"{jobset['metadata']['name']}-{role}-0-{index}"
            assert len(f"{pod}-abcde") <= 63
            if me.addresses and role != "evaluator":
                assert me.addresses[role][index] == f"{pod}.{jobset['metadata']['name']}:2222"
        members += [(role, index) for index in range(spec["parallelism"])]
    assert members == cluster.members


def test_settings_reach_manifest():
    gpus = {"type": "NVIDIA_TESLA_T4", "count": 2}
    chief = {"machine": "n1-standard-8", "accelerator": gpus}
    limits = {"timeout": "1h"}
    cluster = Cluster.read({"strategy": "mirrored", "chief": chief, "scheduling": limits})
    jobset = planned(cluster, queue="q", claim="data:/mnt/data")
    [(_, spec, container)] = containers(jobset)
    pod = spec["template"]["spec"]
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert spec["activeDeadlineSeconds"] == 3600
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "data"}
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert "cpu" in container["resources"]["requests"]
    assert container["volumeMounts"][0]["mountPath"] == "/mnt/data"
    assert "TF_CONFIG" not in environment(container, 0)


def test_patch_of_pool_follows_common_one():
    def patch(**container):
        return {"spec": {"containers": [{"name": "trainer", **container}]}}

    common = patch(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])
    own = patch(env=[{"name": "A", "value": "3"}], resources={"limits": {"memory": "8Gi"}})
    pools = {"chief": {"pod_template": own}, "evaluator": {}, "pod_template": common}
    jobset = planned(Cluster.read({"strategy": "one_device", **pools}))
    chief, evaluator = (container for _, _, container in containers(jobset))
    variables = environment(chief, 0)
    assert (variables["A"], variables["B"], variables["LEVEL"]) == ("3", "2", "$(HOME)")
    assert chief["resources"]["limits"] == {"memory": "8Gi"}
    assert environment(evaluator, 0)["A"] == "1" and not evaluator["resources"]["limits"]


def test_name_follows_job_directory():
    assert jobset_name("gs://b/jobs/a") == jobset_name("gs://b/jobs/a/") != jobset_name("gs://b/b")
    assert yaml.safe_load(yaml.safe_dump(planned(load_cluster(CLUSTERS[0]))))


def test_volume_is_mounted_at_two_paths():
    mounts = [{"name": "mine", "mountPath": path} for path in ("/a", "/b")]
    pod = {"spec": {"containers": [{"name": "trainer", "volumeMounts": mounts}]}}
    cluster = Cluster.read({"strategy": "one_device", "chief": {}, "pod_template": pod})
    [(_, _, container)] = containers(planned(cluster, claim="c:/mnt/data"))
    assert container["volumeMounts"][-2:] == mounts

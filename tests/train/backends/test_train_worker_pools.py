from __future__ import annotations

from pathlib import Path

import pytest
from google_cloud_pipeline_components.container.v1.gcp_launcher.utils.json_util import recursive_remove_empty

from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Disk, Pool
from trainer.base.errors import UserError

CLUSTERS = Path(__file__).parents[3] / "clusters"


def test_parameter_server_pools():
    container = {
        "image_uri": "image@sha256:0",
        "command": ["python", "-m", "trainer.task"],
        "args": ["--train-steps", "9", "--strategy", "parameter_server"],
        "env": [{"name": "TRAINER_POOL_ROLES", "value": "chief,worker,ps"}],
    }
    assert plan_vertex(Cluster.load(CLUSTERS / "vertex-ps.yaml"), "image@sha256:0", ["--train-steps", "9"]) == [
        {"machine_spec": {"machine_type": machine}, "replica_count": replicas, "container_spec": container}
        for machine, replicas in [("n1-standard-4", 1), ("n1-highcpu-16", 4), ("n1-highmem-8", 2)]
    ]


def test_accelerators_and_disk():
    cluster = Cluster.load(CLUSTERS / "vertex-sync.yaml")
    cluster = Cluster(strategy=cluster.strategy, chief=cluster.chief, worker=cluster.worker, disk=Disk(size_gb=200))
    chief, worker = plan_vertex(cluster, "image", [])
    assert (
        worker["machine_spec"]
        == chief["machine_spec"]
        == {
            "machine_type": "n1-standard-8",
            "accelerator_type": "NVIDIA_TESLA_T4",
            "accelerator_count": 1,
        }
    )
    assert worker["replica_count"] == 3
    assert worker["disk_spec"] == {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 200}
    assert worker["container_spec"]["env"] == [{"name": "TRAINER_POOL_ROLES", "value": "chief,worker"}]


def test_pools_are_dense_and_survive_the_pipeline_launcher():
    pool = Pool(machine="n1-standard-4")
    cluster = Cluster(strategy="multi_worker_mirrored", chief=pool, evaluator=pool)
    specs = plan_vertex(cluster, "image", [])
    assert len(specs) == 2
    assert recursive_remove_empty({"worker_pool_specs": specs}) == {"worker_pool_specs": specs}


def test_pool_without_a_machine_is_named():
    cluster = Cluster(strategy="multi_worker_mirrored", chief=Pool(machine="n1-standard-4"), worker=Pool())
    with pytest.raises(UserError, match="worker: Vertex needs a machine type; add 'machine: n1-standard-4' to worker"):
        plan_vertex(cluster, "image", [])


def test_machines_are_optional_where_asked():
    cluster = Cluster(strategy="multi_worker_mirrored", chief=Pool(), worker=Pool(replicas=2))
    specs = plan_vertex(cluster, "image", [], machines=False)
    assert [spec["replica_count"] for spec in specs] == [1, 2]
    assert recursive_remove_empty({"worker_pool_specs": specs}) == {"worker_pool_specs": specs}

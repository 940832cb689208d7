"""What the reviewed plans in `golden` do not show."""

from __future__ import annotations

import pytest
from google_cloud_pipeline_components.container.v1.gcp_launcher.utils.json_util import recursive_remove_empty

from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Disk, Pool
from trainer.base.errors import UserError


def test_pools_are_dense_and_survive_the_pipeline_launcher_with_and_without_machines():
    pool = Pool(machine="n1-standard-4")
    named = Cluster(strategy="multi_worker_mirrored", chief=pool, evaluator=pool, disk=Disk(size_gb=200))
    first = plan_vertex(named, "image", [])
    assert first[1]["disk_spec"] == {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 200}
    bare = Cluster(strategy="multi_worker_mirrored", chief=Pool(), worker=Pool(replicas=2))
    for specs in (first, plan_vertex(bare, "image", [], machines=False)):
        assert len(specs) == 2
        assert recursive_remove_empty({"worker_pool_specs": specs}) == {"worker_pool_specs": specs}


def test_pool_without_a_machine_is_named():
    cluster = Cluster(strategy="multi_worker_mirrored", chief=Pool(machine="n1-standard-4"), worker=Pool())
    with pytest.raises(UserError, match="worker: Vertex needs a machine type; add 'machine: n1-standard-4' to worker"):
        plan_vertex(cluster, "image", [])

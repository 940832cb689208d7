"""Promises of the compiled specs that no run of a test shows."""

import yaml

from components.train.backends.job_settings import JobSettings
from components.train.cluster.lookup import load_cluster
from pipelines.cloud_options import DEFAULT_CLUSTER
from pipelines.compile import compile_specs

IMAGE = f"r/i@sha256:{'0' * 64}"


def test_steps_install_nothing_and_keep_image(tmp_path):
    job = JobSettings().arguments(load_cluster(DEFAULT_CLUSTER))
    for path in compile_specs(IMAGE, str(tmp_path), job=job):
        text = path.read_text()
        assert "pip install" not in text
        spec, *_ = yaml.safe_load_all(text)
        executors = spec["deploymentSpec"]["executors"].values()
        containers = [each["container"] for each in executors if "container" in each]
        own = [each for each in containers if "google_cloud_pipeline_components" not in str(each)]
        assert own and {each["image"] for each in own} == {IMAGE}
        # A retry of a custom job only looks at the failed one again.
        assert "retryPolicy" not in text

"""The project's trainer on a Kubernetes cluster of this machine, disturbed as clusters do it."""

import os
import re
import signal

import pytest

from tests.kubernetes.cluster import SYNC
from tests.kubernetes.control_plane import wait_for
from tests.root import ROOT
from tests.trainer import trainer_jobs

pytestmark = pytest.mark.kubernetes
_STEPS = 200
# As in test_trainer_job.py.
FLAGS = f"--deterministic --train-steps {_STEPS} --checkpoint-num-steps 20 --eval-every-steps 50"


def start(cluster, digits, directory):
    job_dir = directory / "job"
    flags = ["--", f"--data-dir={digits}", f"--job-dir={job_dir}", *FLAGS.split()]
    return cluster.start(job_dir, SYNC, command=flags, mounts=[digits])


def weights_of(job):
    """Waits for the end of a job; returns the digest of its last checkpoint."""
    code, out = job.end()
    assert code == 0, out
    return trainer_jobs.Job(None, job.job_dir).digest(_STEPS)


def test_killed_job_learns_the_same(kubernetes_cluster, digits, tmp_path):
    job = start(kubernetes_cluster, digits, tmp_path)
    checkpoints = job.job_dir / "checkpoints"
    wait_for(lambda: list(checkpoints.glob("ckpt-*.index")), limit_s=120)
    (process,) = kubernetes_cluster.kubelet.processes(f"{job.name}-worker-0-1-")
    os.kill(process.pid, signal.SIGKILL)
    weights = weights_of(job)
    assert job.status()["status"]["restarts"] >= 1
    (tmp_path / "undisturbed").mkdir()
    assert weights == weights_of(start(kubernetes_cluster, digits, tmp_path / "undisturbed"))


def test_page_leads_to_registered_model(kubernetes_cluster, tmp_path):
    """The commands of the page, with a directory in place of its claim."""
    page = (ROOT / "docs/KUBERNETES.md").read_text().replace("/data", str(tmp_path))
    steps = dict(re.findall("^run (\\w+) '(.*)'$", page, re.MULTILINE))
    steps["a"] = f"trainer.task --data-dir {tmp_path}/digits --job-dir {tmp_path}/jobs/a"
    steps["a"] += " --train-steps 600"
    for name in ("convert", "a", "evaluate", "register", "history"):
        flags = ["--job-dir", f"{tmp_path}/jobs/{name}", "--command", f"python -m {steps[name]}"]
        cluster = ["--cluster", str(ROOT / "clusters/local.yaml"), "--image", "none"]
        code, out = kubernetes_cluster.run(*cluster, *flags)
        assert code == 0, out
    assert re.search(r"chief/0 \| .* promote +1 +accuracy", out)

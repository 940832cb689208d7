import shlex
import subprocess
import sys

import psutil
import pytest

from components.cleanup import processes
from components.cleanup.processes import stop_replicas

pytestmark = pytest.mark.cluster
WAIT = "import signal, sys, time; {}; print('ready', flush=True); time.sleep(60)"


@pytest.fixture
def replica(tmp_path):
    """Starts a process whose command line is that of a trainer."""
    started = []

    def start(*flags, module="trainer.task", ignores_sigterm=False, cwd=tmp_path):
        first = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if ignores_sigterm else "pass"
        line = [sys.executable, "-S", "-c", WAIT.format(first), "-m", module, *map(str, flags)]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=cwd)
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    ("job", "flags"),
    [
        ("{here}/jobs/a", ("--job-dir", "{here}/jobs/a")),
        ("{here}/jobs/a", ("--job-dir={here}/jobs/a",)),
        ("{here}/jobs/a", ("--job_dir={here}/jobs/a", "--train-steps", "5")),
        ("{here}/jobs/a", ("--job-dir", "jobs/a")),
        ("{here}/jobs/a", ("--job-dir", "jobs/b", "--job-dir", "{here}/jobs/a")),
        ("gs://bucket/jobs/a", ("--job-dir", "gs://bucket/jobs/a")),
        ("gs://bucket/jobs/a", ("--job-dir", "gs://bucket/jobs/a/")),
    ],
)
def test_a_replica_of_this_job_is_stopped(replica, tmp_path, job, flags):
    process = replica(*(flag.format(here=tmp_path) for flag in flags))
    assert stop_replicas(job.format(here=tmp_path)) == [process.pid]
    assert not psutil.pid_exists(process.pid)


def test_no_other_process_is_stopped(replica, tmp_path):
    job = tmp_path / "jobs" / "a"
    (tmp_path / "elsewhere").mkdir()
    others = [
        replica("--job-dir", tmp_path / "jobs" / "b"),
        replica("--job-dir", "gs://bucket/jobs/b"),
        replica("--job-dir", job / "model"),
        replica("--job-dir", job, "--job-dir", tmp_path / "jobs" / "b"),
        replica("--job-dir"),
        replica("--job-dir", "jobs/a", cwd=tmp_path / "elsewhere"),
        replica("--job-dir", job, module="tensorboard"),
    ]
    assert stop_replicas(str(job)) == stop_replicas("gs://bucket/jobs/a") == []
    assert [process.poll() for process in others] == [None] * len(others)


def test_a_process_of_another_container_is_not_stopped(container, tmp_path):
    line = [sys.executable, "-S", "-c", WAIT.format("pass"), "trainer.task", "--job-dir", str(tmp_path)]
    (tmp_path / "line").write_text(f"exec {shlex.join(line)}")
    with subprocess.Popen([*container, "sh", tmp_path / "line"], stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        (inner,) = psutil.Process(other.pid).children()
        assert inner.pid not in stop_replicas(str(tmp_path))
        assert inner.is_running()
        inner.kill()


def test_a_replica_that_does_not_listen_is_killed(replica, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_TERMINATE_S", 0.2)
    process = replica("--job-dir", tmp_path, ignores_sigterm=True)
    assert stop_replicas(str(tmp_path)) == [process.pid]
    assert process.wait(1) == -9

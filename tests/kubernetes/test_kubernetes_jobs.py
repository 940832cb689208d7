"""Jobs on a Kubernetes cluster of this machine, which end well or are ended."""

import signal

import pytest

from tests.kubernetes.cluster import SYNC

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def cluster(kubernetes_cluster):
    return kubernetes_cluster


def test_program_without_our_code_runs(cluster, tmp_path):
    job = cluster.start(tmp_path / "job", SYNC)
    job.wait_for_pods(3)
    job.order("chief-0", 0)
    code, out = job.end()
    assert code == 0, out
    assert "chief/0 | ready\n" in out and "worker/1 | ready\n" in out
    assert "chief/0 ended: exit code 0" in out and out.splitlines()[-1].startswith(
        "launcher | done"
    )


def test_stop_waits_for_pods(cluster, tmp_path):
    job = cluster.start(tmp_path / "job", SYNC)
    job.wait_for_pods(3)
    stop = cluster.command("--stop", str(job.job_dir))
    out = stop.communicate()[0]
    assert stop.returncode == 0, out
    assert not cluster.kubelet.processes(job.name) and not job.status()
    code, out = job.end()
    assert code == 143 and "its JobSet was deleted" in out


def test_program_that_ignores_stop_is_killed(cluster, tmp_path):
    line = "python -c 'import signal; signal.signal(15, signal.SIG_IGN); signal.pause()'"
    command = ["--command", line, "--job-dir", str(tmp_path / "job")]
    job = cluster.start(tmp_path / "job", SYNC, command=command)
    job.wait_for_pods(3)
    job.launcher.terminate()
    code, out = job.end()
    assert code == 137, out
    assert not cluster.kubelet.processes(job.name)


def test_command_attaches_to_running_job(cluster, tmp_path):
    first = cluster.start(tmp_path / "job", SYNC)
    first.wait_for_pods(3)
    first.launcher.send_signal(signal.SIGHUP)
    code, out = first.end()
    assert code == 129 and "goes on without this" in out
    second = cluster.start(tmp_path / "job", SYNC)
    lines = []
    for line in second.launcher.stdout:
        lines.append(line)
        if "runs already; this follows it" in line:
            break
    second.order("chief-0", 0)
    code, out = second.end()
    assert code == 0 and "chief/0 | ready" in out


def test_ended_job_shows_status_and_logs(cluster, tmp_path):
    job = cluster.start(tmp_path / "job", SYNC)
    job.wait_for_pods(3)
    job.order("worker-1", 2)
    code, out = job.end()
    assert code == 2, out
    shown = {}
    for verb in ("status", "logs", "stop"):
        command = cluster.command(f"--{verb}", str(job.job_dir))
        shown[verb] = command.communicate()[0]
    assert (
        shown["status"].startswith("failed, ")
        and "worker/1     ended: exit code 2" in shown["status"]
    )
    assert "worker/1 | ends\n" in shown["logs"]
    assert "nothing is running here; the last that did is failed" in shown["stop"]
    again = cluster.start(tmp_path / "job", SYNC)
    again.wait_for_pods(3)
    again.order("chief-0", 0)
    code, out = again.end()
    assert code == 0, out

import pytest
from train_fakes import ONE, PS, wait_until

from components.train.__main__ import main

pytestmark = pytest.mark.cluster

SAVES = (
    "signal.signal(signal.SIGTERM, lambda *_: (tell('saving', 8), "
    "sys.exit(143)))\ntell('training', 7)\ntime.sleep(60)"
)
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); tell('training', 8); time.sleep(60)"


def status(path, capsys):
    """Returns the lines of `--status`, with single spaces."""
    capsys.readouterr()
    assert main(["--status", str(path)]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_status_of_running_and_killed_job(bench, capsys):
    launcher = bench.start(PS, chief_0=SAVES)
    wait_until(
        lambda: len(bench.starts()) == 3 and (bench.path / "logs/chief-0.status.json").exists()
    )
    first, *replicas, _ = status(bench.path, capsys)
    assert first.startswith(f"running, process {launcher.pid}, started ")
    assert replicas == ["chief/0 training, step 7", "worker/0 started", "ps/0 started"]
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: status(bench.path, capsys)[0].startswith("killed, "))


@pytest.mark.parametrize(
    ("script", "code", "state", "word"),
    [
        (SAVES, 143, "stopped", "told to stop by SIGTERM after"),
        (STUBBORN, 137, "failed", "may not have saved; the grace period is 2 s"),
    ],
)
def test_stop_waits_for_end(bench, capsys, script, code, state, word):
    launcher = bench.start(ONE, chief_0=script, grace_period_s=2)
    wait_until((bench.path / "logs/chief-0.status.json").exists)
    assert main(["--stop", str(bench.path)]) == (code if state == "failed" else 0)
    assert not bench.processes()
    assert word in capsys.readouterr().out
    launcher.communicate()
    assert launcher.returncode == code
    first, chief, _ = status(bench.path, capsys)
    assert first.startswith(f"{state}, started ") and first.endswith(f"exit code {code}")
    assert chief == "chief/0 ended, step 8"

import re
import signal
from pathlib import Path

import pytest
from train_fakes import CALM, ONE, PS, Bench, wait_until

from components.train.__main__ import main
from components.train.supervision.health import Patience

pytestmark = pytest.mark.cluster

LOCAL = Path(__file__).parents[3] / "clusters" / "local.yaml"
SAVES = (
    "signal.signal(signal.SIGTERM, lambda *_: (tell('saving', 8), "
    "sys.exit(143)))\ntell('training', 7)\ntime.sleep(60)"
)


def status(path: Path, capsys: pytest.CaptureFixture) -> list[str]:
    """Returns the lines of `--status`, with single spaces."""
    capsys.readouterr()
    assert main(["--status", str(path)]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_status_of_running_job(bench: Bench, capsys: pytest.CaptureFixture):
    launcher = bench.start(bench.plan(PS, chief_0=SAVES))
    wait_until(
        lambda: len(bench.starts()) == 3 and (bench.path / "logs/chief-0.status.json").exists()
    )
    first, chief, *others, _ = status(bench.path, capsys)
    assert first.startswith(f"running, process {launcher.pid}, started ")
    assert (chief, others) == ("chief/0 training, step 7", ["worker/0 started", "ps/0 started"])
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate()


def test_status_is_same_from_another_directory(
    bench: Bench, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(bench.path)
    (bench.path / "run").write_text(
        """#!/bin/sh\necho '{"phase": "done", "step": 7}' > "$TRAINER_STATUS" """
    )
    (bench.path / "run").chmod(0o755)
    assert main(["--cluster", str(LOCAL), "--command", "./run", "--job-dir", "."]) == 0
    monkeypatch.chdir("/")
    assert status(bench.path, capsys)[1] == "chief/0 ended, step 7"


def test_stop_waits_until_job_saved(bench: Bench, capsys: pytest.CaptureFixture):
    launcher = bench.start(bench.plan(ONE, chief_0=SAVES))
    wait_until((bench.path / "logs/chief-0.status.json").exists)
    assert main(["--stop", str(bench.path)]) == 0
    assert not bench.processes()
    assert re.search(r"\ntold to stop by SIGTERM after .* s, at step 8\n$", capsys.readouterr().out)
    launcher.communicate()
    assert launcher.returncode == 143
    first, chief, _ = status(bench.path, capsys)
    assert first.startswith("stopped, started ") and first.endswith("exit code 143")
    assert chief == "chief/0 ended, step 8"


def test_stop_reports_killed_replica(bench: Bench, capsys: pytest.CaptureFixture):
    slow = SAVES.replace("tell('saving', 8)", "time.sleep(60)")
    launcher = bench.start(bench.plan(ONE, chief_0=slow), Patience(grace_period_s=0.2, **CALM))
    wait_until((bench.path / "logs/chief-0.status.json").exists)
    assert main(["--stop", str(bench.path)]) == 137
    killed = "but chief/0 had to be killed and may not have saved; the grace period is 0.2 s"
    assert killed in capsys.readouterr().out
    launcher.communicate()
    assert launcher.returncode == 137
    assert status(bench.path, capsys)[0].startswith("failed")


def test_status_after_kill(bench: Bench, capsys: pytest.CaptureFixture):
    launcher = bench.start(bench.plan(ONE))
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: status(bench.path, capsys)[0].startswith("killed, "))

import re
import signal
from pathlib import Path

import pytest
from train_fakes import CALM, ONE, PS, SYNC, Bench, wait_until

from common.errors import UserError
from components.train.__main__ import main
from components.train.supervision.health import Patience

pytestmark = pytest.mark.cluster

LOCAL = Path(__file__).parents[3] / "clusters" / "local.yaml"
SAVES = (
    "signal.signal(signal.SIGTERM, lambda *_: (tell('saving', 8), sys.exit(143)))\ntell('training', 7)\ntime.sleep(60)"
)


def status(path: Path, capsys: pytest.CaptureFixture) -> list[str]:
    """The lines of `--status`, in single spaces."""
    capsys.readouterr()
    assert main(["--status", str(path)]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_status_of_running_job(bench: Bench, capsys: pytest.CaptureFixture):
    launcher = bench.start(bench.plan(PS, chief_0=SAVES))
    wait_until(lambda: len(bench.starts()) == 3 and (bench.path / "logs/chief-0.status.json").exists())
    first, chief, *others, _ = status(bench.path, capsys)
    assert first.startswith(f"running, process {launcher.pid}, started ")
    assert (chief, others) == ("chief/0 training, step 7", ["worker/0 started", "ps/0 started"])
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate()


def test_status_is_the_same_from_another_directory(
    bench: Bench, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(bench.path)
    script = "import json, os; open(os.environ['TRAINER_STATUS'], 'w').write(json.dumps({'phase': 'done', 'step': 7}))"
    (bench.path / "x.py").write_text(script)
    assert main(["--cluster", str(LOCAL), "--command", "python x.py", "--job-dir", "."]) == 0
    monkeypatch.chdir("/")
    assert status(bench.path, capsys)[1] == "chief/0 ended, step 7"


def test_stop_has_job_save_and_waits(bench: Bench, capsys: pytest.CaptureFixture):
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


SLOW = SAVES.replace("tell('saving', 8)", "time.sleep(1), tell('saving', 8)")
KILLED = "but chief/0 had to be killed and may not have saved; the grace period is 0.2 s"


@pytest.mark.parametrize(("grace_period_s", "code"), [(30.0, 0), (0.2, 137)])
def test_stop_reports_replica_killed(bench: Bench, capsys: pytest.CaptureFixture, grace_period_s: float, code: int):
    launcher = bench.start(bench.plan(ONE, chief_0=SLOW), Patience(grace_period_s=grace_period_s, **CALM))
    wait_until((bench.path / "logs/chief-0.status.json").exists)
    assert main(["--stop", str(bench.path)]) == code
    printed = capsys.readouterr().out
    assert (KILLED in printed, "saved" in printed.replace("may not have saved", "")) == (code == 137, False)
    launcher.communicate()
    assert launcher.returncode == (code or 143)
    assert status(bench.path, capsys)[0].startswith("failed" if code else "stopped")


@pytest.mark.parametrize(("script", "state", "code"), [("", "done", 0), ("sys.exit(7)", "failed", 7)])
def test_status_of_ended_job(bench: Bench, capsys: pytest.CaptureFixture, script: str, state: str, code: int):
    bench.run(bench.plan(ONE, chief_0=script))
    first = status(bench.path, capsys)[0]
    assert first.startswith(f"{state}, started ") and first.endswith(f"exit code {code}")
    with pytest.raises(UserError, match=f"nothing is running here; the last that did is {state}"):
        main(["--stop", str(bench.path)])


def test_status_without_job_and_after_kill(bench: Bench, capsys: pytest.CaptureFixture):
    for flag in ("--status", "--stop"):
        with pytest.raises(UserError, match="no job ran here"):
            main([flag, str(bench.path)])
    launcher = bench.start(bench.plan(SYNC))
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: status(bench.path, capsys)[0].startswith("killed, "))

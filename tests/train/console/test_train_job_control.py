import re
import signal
import socket
from pathlib import Path

import pytest
from train_fakes import ONE, PS, SYNC, Bench, wait_until

from components.train.__main__ import main
from components.train.console.job_control import status
from trainer.base.errors import UserError

pytestmark = pytest.mark.cluster

LOCAL = Path(__file__).parents[3] / "clusters" / "local.yaml"
SAVES = (
    "signal.signal(signal.SIGTERM, lambda *_: (tell('saving', 8), sys.exit(143)))\ntell('training', 7)\ntime.sleep(60)"
)


def test_status_of_a_running_job(bench: Bench, capsys: pytest.CaptureFixture):
    launcher = bench.start(
        bench.plan(PS, max_restarts=1, chief_0=SAVES, worker_0="if attempt == 0: sys.exit(7)\ntime.sleep(60)")
    )
    wait_until(lambda: len(bench.starts()) == 4 and (bench.path / "logs/chief-0.status.json").exists())
    job = status(str(bench.path))
    assert (job.state, job.holder.pid, job.end) == ("running", launcher.pid, None)
    assert job.restarts == {"errors": 1, "preemptions": 0}
    chief, worker, _ = job.rows
    assert (chief.phase, chief.step) == ("training", 7)
    assert worker.phase == "started"
    assert main(["--status", str(bench.path)]) == 0
    assert f"running, process {launcher.pid} of {socket.gethostname()}, started" in capsys.readouterr().out
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
    assert status(str(bench.path)).rows[0].step == 7


def test_stop_has_the_job_save_waits_and_says_what_happened(bench: Bench, capsys: pytest.CaptureFixture):
    launcher = bench.start(bench.plan(ONE, chief_0=SAVES))
    wait_until((bench.path / "logs/chief-0.status.json").exists)
    assert main(["--stop", str(bench.path)]) == 0
    assert not bench.processes()
    assert re.match(
        r"told to stop by SIGTERM after .* s, at step 8\n", capsys.readouterr().out.splitlines(keepends=True)[-1]
    )
    launcher.communicate()
    assert launcher.returncode == 143
    job = status(str(bench.path))
    assert (job.state, job.end["exit_code"], job.rows[0].phase) == ("stopped", 143, "ended: exit code 143")


@pytest.mark.parametrize(("script", "state", "code"), [("", "done", 0), ("sys.exit(7)", "failed", 7)])
def test_status_of_a_job_that_ended(bench: Bench, capsys: pytest.CaptureFixture, script: str, state: str, code: int):
    bench.run(bench.plan(ONE, chief_0=script))
    job = status(str(bench.path))
    assert (job.state, job.end["exit_code"], job.holder) == (state, code, None)
    with pytest.raises(UserError, match=f"nothing is running here; the last that did is {state}"):
        main(["--stop", str(bench.path)])


def test_status_of_no_job_and_of_one_whose_launcher_was_killed(bench: Bench, capsys: pytest.CaptureFixture):
    for flag in ("--status", "--stop"):
        with pytest.raises(UserError, match="no job ran here"):
            main([flag, str(bench.path)])
    launcher = bench.start(bench.plan(SYNC))
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: status(str(bench.path)).state == "killed")

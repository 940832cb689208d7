from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator

import psutil
import pytest
from train_fakes import wait_until

from components.train.supervision.template import Template

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent"),
]


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    template = Template(os.environ, ["trainer.task", "--job-dir", "jobs/a"])
    while not template.ready:  # as the launcher waits for it: however long that takes
        select.select([template], [], [])
        template.read_waiting()
        assert not template.gone
    yield template
    template.close()


def test_fork_is_a_replica_of_its_own_with_its_flags_environment_output_and_exit_code(template: Template):
    bad = template.popen(["--data-dir"], os.environ)
    good = template.popen(["--help"], {**os.environ, "COLUMNS": "200"})
    assert os.getpgid(good.pid) == good.pid != bad.pid
    assert (bad.wait(), good.wait()) == (2, 0)
    assert "argument --data-dir: expected one argument" in bad.stdout.read().decode()
    assert "that replicas wait for each other at the start" in good.stdout.read().decode()


def test_replicas_die_with_a_template_that_is_killed_and_no_more_are_forked(template: Template):
    process = psutil.Process(template._process.pid)
    replica = template.popen(["--help"], os.environ)
    os.kill(replica.pid, signal.SIGSTOP)
    process.kill()
    assert replica.wait() == -signal.SIGKILL
    assert template.gone
    assert template.popen(["--help"], os.environ) is None
    wait_until(
        lambda: not psutil.pid_exists(replica.pid) or psutil.Process(replica.pid).status() == psutil.STATUS_ZOMBIE
    )

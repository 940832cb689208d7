"""Replicas that run elsewhere: what their clients tell late."""

import dataclasses

import pytest
from train_fakes import QUICK, SYNC, Bench, waits

pytestmark = pytest.mark.cluster


def test_client_that_tells_of_a_kill_later_than_its_peers_failed_is_to_blame(bench: Bench):
    peer = waits(bench, "worker-0") + "sys.exit(0 if attempt else 1)"
    client = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)\n"
    client += "time.sleep(0.3); sys.exit(0 if attempt else 137)"
    plan = bench.plan(SYNC, max_restarts=1, chief_0=peer, worker_0=client, worker_1="sys.exit(0)")
    code, _ = bench.run(plan, dataclasses.replace(QUICK, failure_s=5, report_delay_s=5))
    assert code == 0
    (blame,) = bench.events("blame")
    assert (blame["replica"], blame["kind"]) == ("worker/0", "preemption")

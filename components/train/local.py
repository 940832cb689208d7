"""Our trainer on this machine: a cluster and the trainer's flags become a process plan.

Synopsis:

    with planned(Cluster.load("clusters/local-ps.yaml"), ["--job-dir", "jobs/a", ...]) as plan:
        exit_code = process.run(plan)
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

from components.train.cluster import Cluster
from components.train.plan import ProcessPlan, plan_processes, port_count, trainer_flags
from components.train.ports import reserved
from trainer.errors import UserError


@contextlib.contextmanager
def planned(cluster: Cluster, flags: Sequence[str], log_dir: str | None = None) -> Iterator[ProcessPlan]:
    """Yields the plan; its ports are locked until the block ends.

    Args:
      cluster: What to run on.
      flags: The trainer's flags, `--job-dir` among them.
      log_dir: For log and status files; by default `replicas` in the job directory.

    Raises:
      UserError: If the flags have no job directory, or a remote one and there is no `log_dir`, or name a strategy.
    """
    job_dir = _job_dir(flags)
    if not log_dir and "://" in job_dir:
        raise UserError(f"replicas write their logs to this machine, and --job-dir is {job_dir}; add --log-dir DIR")
    with reserved(port_count(cluster)) as ports:
        yield plan_processes(
            cluster,
            [sys.executable, "-m", "trainer.task", *trainer_flags(cluster, flags)],
            job_dir=job_dir,
            log_dir=log_dir or os.path.join(job_dir, "replicas"),
            ports=ports,
            cores=_cores(),
        )


def _job_dir(flags: Sequence[str]) -> str:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--job-dir", "--job_dir")
    with contextlib.suppress(argparse.ArgumentError):  # No value after it.
        if job_dir := parser.parse_known_args(flags)[0].job_dir:
            return job_dir
    raise UserError("--job-dir is missing among the trainer flags; add it after the '--': -- --job-dir jobs/my-job ...")


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

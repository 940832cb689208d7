"""Runs a plan: starts the replicas, watches them, starts them again after a failure, and says what happened.

    with Output() as output:
        exit_code = run(plan, output)

Who starts again when a replica dies, and when it is enough, is `restart_policy`; when one is taken for frozen, `health`;
what is done then, `running_job`. A signal to this process stops every replica; nothing outlives it, be it killed by SIGKILL, and it
does not outlive the process that `PIPELINE_OWNER_PID` names.
"""

import contextlib
import os
import signal

from components.train.backends.plan import Plan
from components.train.supervision.job_lock import locked
from components.train.supervision.launcher_log import Record
from components.train.supervision.output import Output
from components.train.supervision.preparation import prepare
from components.train.supervision.reaper import JOB, Guard
from components.train.supervision.running_job import Job
from components.train.supervision.signals import signal_socket
from components.train.supervision.timeouts import Patience
from trainer.base import lifeline
from trainer.base.errors import UserError


def run(plan: Plan, output: Output, patience: Patience | None = None) -> int:
    """Runs the job to its end; to be called from the main thread. After a `UserError` no replica runs.

    Returns 0 after the chief's success; the exit code of the replica that failed first, 128+n if signal n killed it, when
    it cannot be started again; 128+n if signal n told this process to stop.
    """
    owner = lifeline.owner_pid(os.environ)
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(locked(plan.records_dir))
            record = stack.enter_context(contextlib.closing(Record(plan.records_dir)))
            os.makedirs(plan.log_dir, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write to {error.filename or plan.records_dir}: {error.strerror}") from None
        signals = stack.enter_context(signal_socket())
        guard = Guard(hold=[lock])
        job = Job(plan, patience or Patience(), output, record, guard, signals)
        stack.callback(job.reap)
        stack.enter_context(contextlib.closing(guard))
        guard.expect(JOB, plan.teardown)
        if owner:
            # The guard does the rest.
            lifeline.watch(owner, lambda: os.kill(os.getpid(), signal.SIGKILL))
        if number := prepare(plan.setup, guard.mark("setup", 0), signals, output, plan.log_dir):
            return 128 + number
        try:
            return job.run()
        except UserError as error:
            record.add("end", exit_code=2, why=str(error))
            raise

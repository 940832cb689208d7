"""What every replica runs: `python -m trainer.task --data-dir D --job-dir J --train-steps N`.

Exit codes: 0 done; 143 saved on SIGTERM; 2 a mistake in the arguments; anything else an error.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import traceback
from collections.abc import Sequence

from trainer import cluster, done, identity, options, quiet, stop
from trainer.errors import UserError, run_cli
from trainer.manifest import Manifest


def main(argv: Sequence[str] | None = None) -> int:
    """Trains, or serves as a parameter server or its worker, until the job is done. Returns the exit code."""
    # First of all: whatever imports TensorFlow later, its threads inherit the mask.
    signal = stop.Stop.install()
    opts = options.parse(sys.argv[1:] if argv is None else argv)
    member = cluster.from_environment(os.environ)
    opts = dataclasses.replace(opts, strategy=opts.strategy or member.default_strategy)
    manifest = Manifest.load(opts.data_dir)
    facts = {**opts.identity(), "dataset": manifest.name, "fingerprint": manifest.fingerprint}
    # Before TensorFlow is imported: a refusal comes at once, and a finished job run again answers at once.
    identity.check(opts.job_dir, facts)
    if (record := done.load(opts.job_dir)) and _covers(record, opts):
        print(f"{opts.job_dir}: already done at step {record.step}")
        return 0
    if member.is_chief:
        identity.claim(opts.job_dir, facts)
    with quiet.without_advice():
        from trainer import job

    try:
        code = job.run(opts, member, manifest, signal)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    # TensorFlow's runtime may wait for peers that are gone, or complain of them, while it is torn down.
    os._exit(code)


def _covers(record: done.Done, opts: options.Options) -> bool:
    """Whether what was done is what is asked for."""
    if opts.train_steps is not None:
        return record.step >= opts.train_steps
    return record.epochs >= opts.train_epochs


if __name__ == "__main__":
    run_cli(main)

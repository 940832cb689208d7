"""What every replica runs: `python -m trainer.task --data-dir D --job-dir J --train-steps N`.

Exit codes: 0 done; 143 saved on SIGTERM; 2 a mistake in the arguments; anything else an error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import traceback
from collections.abc import Sequence

from etils import epath

from trainer import options
from trainer.base import quiet
from trainer.base.errors import UserError, run_cli
from trainer.base.manifest import Manifest
from trainer.job_dir import done, identity
from trainer.replicas import member, stop


def main(argv: Sequence[str] | None = None) -> int:
    """Trains, or serves as a parameter server or its worker, until the job is done. Returns the exit code."""
    # First of all: whatever imports TensorFlow later, its threads inherit the mask.
    signal = stop.Stop.install()
    quiet.open_streams()
    opts = options.parse(sys.argv[1:] if argv is None else argv)
    me = member.from_environment(os.environ)
    if opts.sync:
        if me.role == "ps":
            print(f"{me.name}: --sync needs no parameter servers; this one ends", flush=True)
            return 0
        me = _without_servers(me)
        opts = dataclasses.replace(opts, strategy=None if opts.strategy == "parameter_server" else opts.strategy)
    opts = dataclasses.replace(opts, strategy=opts.strategy or me.default_strategy)
    manifest = Manifest.load(opts.data_dir)
    opts = opts.on(manifest)
    facts = {**opts.identity(), "dataset": manifest.name, "fingerprint": manifest.fingerprint}
    # Before TensorFlow is imported: a refusal comes at once, and a finished job run again answers at once.
    identity.check(opts.job_dir, facts)
    if (record := done.load(opts.job_dir)) and record.covers(opts.train_steps, opts.train_epochs):
        if (epath.Path(opts.job_dir) / "model" / "saved_model.pb").exists():
            print(f"{opts.job_dir}: already done at step {record.step}", flush=True)
            return 0
        print(f"{opts.job_dir}: done at step {record.step}, but its model is gone and is exported again", flush=True)
    if me.is_chief:
        identity.claim(opts.job_dir, facts)
    with quiet.without_advice(peers=bool(me.addresses)):
        from trainer import job
    quiet.lost_replicas()
    try:
        code = job.run(opts, me, manifest, signal)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except BrokenPipeError:  # nobody reads what it prints, and prints in vain
        code = 141
    except OSError as error:  # a full disk, a replica that is missing or lost
        print(f"error: {error}", file=sys.stderr)
        code = 1
    except Exception:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    # TensorFlow's runtime may wait for peers that are gone, or complain of them, while it is torn down.
    os._exit(code)


def _without_servers(me: member.Member) -> member.Member:
    addresses = {role: hosts for role, hosts in me.addresses.items() if role != "ps"}
    return dataclasses.replace(me, addresses=addresses if sum(map(len, addresses.values())) > 1 else {})


if __name__ == "__main__":
    run_cli(main)

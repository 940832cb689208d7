"""The program that every replica runs.

    python -m trainer.task --data-dir D --job-dir J --train-steps N

Exit codes: 0 if the job is done; 143 if it was saved after SIGTERM; 2 for a mistake in the
arguments; others for errors.
"""

import contextlib
import dataclasses
import faulthandler
import os
import re
import sys
import traceback
from collections.abc import Sequence

from etils import epath

from common import quiet
from common.cli import run_cli
from common.errors import UserError, reading
from common.manifest import Manifest
from common.storage.storage import is_remote
from trainer import options
from trainer.cluster import member
from trainer.cluster.shutdown import Stop, failed_code
from trainer.job import done, identity


def main(argv: Sequence[str] | None = None) -> int:
    """Trains, evaluates, or serves as a parameter server or its worker, and ends the process.

    Errors after the flags are read are printed, and the process ends with their exit code, such as
    2 for a `UserError` and `failed_code()` for a lost replica or a failing disk or store.

    Args:
      argv: Arguments without the program's name; None for those of the process.

    Returns:
      0 if there is nothing to do: the job is already done and has its model, or this is a parameter
      server and `--sync` needs none. Otherwise it does not return.

    Raises:
      UserError: If the flags or the cluster in the environment are wrong.
    """
    # This must come before anything imports TensorFlow, so that its threads inherit the mask.
    stop = Stop.install()
    faulthandler.enable(2)  # After a crash in TensorFlow, stderr has the stack of each thread.
    opts = options.parse(sys.argv[1:] if argv is None else argv)
    me = member.from_environment(os.environ, sync=opts.sync)
    if opts.sync and me.role == "ps":
        print(f"{me.name}: --sync needs no parameter servers; this one ends")
        return 0
    named = None if opts.sync and opts.strategy == "parameter_server" else opts.strategy
    opts = dataclasses.replace(opts, strategy=named or me.default_strategy)
    try:
        # The advice comes from TensorFlow, which reading from a bucket imports too.
        with quiet.without_advice(peers=bool(me.addresses)):
            with reading(opts.data_dir, "give --data-dir a dataset that can be reached"):
                manifest = Manifest.load(opts.data_dir)
            opts = opts.on(manifest)
            # This is done before TensorFlow is imported, so that the user sees at once that the job
            # is refused or already finished.
            with reading(f"--job-dir {opts.job_dir}", "use another"):
                if not is_remote(opts.job_dir):
                    os.makedirs(opts.job_dir, exist_ok=True)
                identity.check(opts.job_dir, opts.facts(manifest))
                record = done.load(opts.job_dir)
            if record and opts.is_met_by(record):
                if (epath.Path(opts.job_dir) / "model" / "saved_model.pb").exists():
                    print(f"{opts.job_dir}: already done at step {record.step}")
                    return 0
                print(
                    f"{opts.job_dir}: done at step {record.step}, but its model is gone and is "
                    "exported again"
                )
            quiet.import_keras()
            from trainer import main_loop
        quiet.lost_replicas()
        code = main_loop.run(opts, me, manifest, stop)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2
    except BrokenPipeError:  # The reader of its output has ended.
        code = 141
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        frames = traceback.walk_tb(error.__traceback__)
        packages = {frame.f_globals.get("__name__", "").split(".")[0] for frame, _ in frames}
        # For a full disk, a store, or a replica that is missing or lost, the message is enough. If
        # the error came from the user's own code, the traceback is needed.
        ours = isinstance(error, OSError) and re.split("[.:]", str(opts.model))[0] not in packages
        code = failed_code() if ours else 1
        if ours:
            print(f"error: {error}", file=sys.stderr)
        else:
            traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    # The process ends without the usual shutdown, in which TensorFlow's runtime may wait for peers
    # that are gone, or report them.
    stop.end(code)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # A model may be built from a set of names. Fixed hashes make the order of a set, and so the
        # model, the same in all replicas and attempts.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    run_cli(main)

"""TensorBoard over runs: each under a name that says what it was, with its settings and test metrics in the HParams tab."""

import contextlib
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

from pipelines.local import summary
from pipelines.local.history import SUCCEEDED, Run
from pipelines.local.record import FILE
from trainer.base.quiet import without_advice

with without_advice():
    import tensorflow as tf
    from tensorboard.plugins.hparams import api, api_pb2
    from tensorboard.plugins.hparams.summary import session_end_pb


def show(runs: Sequence[Run], port: int) -> int:
    """Runs TensorBoard until it is stopped. Returns its exit code."""
    with laid_out(runs) as directory, contextlib.suppress(KeyboardInterrupt):
        line = [sys.executable, "-m", "tensorboard.main", "--logdir", directory, "--port", str(port)]
        return subprocess.run(line).returncode
    return 0


@contextlib.contextmanager
def laid_out(runs: Sequence[Run]) -> Iterator[str]:
    """Yields a directory as TensorBoard reads it; links lead to what the jobs write, also later."""
    with tempfile.TemporaryDirectory(prefix="board-") as directory:
        for run in {run.dir: run for run in runs}.values():
            cluster = pathlib.Path(run.record.cluster).stem
            place = pathlib.Path(directory, f"{run.dir.name} {run.record.dataset.replace('/', '-')} {cluster}")
            place.mkdir()
            for name in ("train", "validation"):  # of the job, which TensorBoard shows as parts of the run
                (place / name).symlink_to(run.dir / "job" / "logs" / name)
            with tf.summary.create_file_writer(str(place)).as_default(step=0):
                _write(run)
        yield directory


def _write(run: Run) -> None:
    """What the HParams tab shows of a run: its settings, how it ended, and the metrics of the test split."""
    plain = {name: v if isinstance(v, bool | int | float) else str(v) for name, v in run.settings.items()}
    api.hparams(plain, trial_id=run.dir.name, start_time_secs=(run.dir / FILE).stat().st_mtime)
    for name, figure in run.summary.get("metrics", {}).items():
        if figure is not None:
            tf.summary.scalar(f"test/{name}", figure)
    if run.summary:
        status = api_pb2.STATUS_SUCCESS if run.status == SUCCEEDED else api_pb2.STATUS_FAILURE
        end = session_end_pb(status, end_time_secs=(run.dir / summary.FILE).stat().st_mtime)
        tf.summary.experimental.write_raw_pb(end.SerializeToString())

"""A contestant: our step loop through our reader. `python -m tests.bench.ours MODEL DATA_DIR STEPS FLAG...`"""

from __future__ import annotations

import sys

from tests.bench.serve import serve
from trainer import job, learning, options
from trainer.base.manifest import Manifest
from trainer.data import records
from trainer.data.reader.modes import budget, choose
from trainer.nn.models import registry
from trainer.replicas.member import Member
from trainer.steps import SyncSteps, TrainStep


def main(model_name: str, data_dir: str, steps: int, flags: list[str]) -> None:
    """Builds as `trainer.job` does on one device, and trains on from lap to lap."""
    argv = ["--data-dir", data_dir, "--job-dir", "unused", "--model", model_name, "--train-steps", "1000000", *flags]
    opts = options.parse([*argv, "--strategy", "one_device"], {})
    job.configure(opts)
    import tensorflow as tf

    manifest, strategy = Manifest.load(data_dir), tf.distribute.OneDeviceStrategy("CPU:0")
    examples, batch = manifest.split("train").examples, opts.global_batch_size(1)
    with strategy.scope():
        build = registry.builder(opts.model, manifest, opts.network)
        model = build()
        optimizer = learning.optimizer(opts, examples=examples, examples_per_step=batch, horizon_steps=1_000_000)
        optimizer.build(model.trainable_variables)
    step = TrainStep(model=model, optimizer=optimizer, label=manifest.label, global_batch=batch, seed=0)
    choice = choose(manifest, data_dir=data_dir, budget_bytes=budget(None, 1), wish=opts.reader)
    place = records.locate(choice, manifest, Member(role="chief", index=0, addresses={}), lambda: None)
    reader = records.open_reader(place, manifest, global_batch=batch, seed=0, prepare=build.prepare)
    loop = SyncSteps(strategy, step, reader, True)
    reached = 0

    def lap() -> float:
        nonlocal reached
        until = reached + steps
        while reached < until:
            reached += loop.run(reached, until, False).steps
        return steps * batch

    serve(lap)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])

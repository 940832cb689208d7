"""Contestants on one device: our step loop through our reader, or Keras `fit` with the data in memory.

`python -m tests.bench.fit ours|keras MODEL DATA_DIR STEPS FLAG...`
"""

import sys
from collections.abc import Callable
from unittest import mock

import keras
import numpy as np

from common.manifest import Manifest
from tests.bench.serve import serve
from tests.bench.wide_deep_peer import ordinary_columns, ordinary_model
from trainer import learning, main_loop, options
from trainer.data import records
from trainer.data.placement import budget, choose, provide_files
from trainer.data.reader import open_reader
from trainer.models import registry, resnet
from trainer.sync_steps import SyncSteps
from trainer.train_step import TrainStep


def _ours(opts: options.Options, manifest: Manifest, steps: int) -> Callable[[], float]:
    """Builds as `trainer.main_loop` does on one device, and trains on from lap to lap."""
    import tensorflow as tf

    strategy, batch = tf.distribute.OneDeviceStrategy("CPU:0"), opts.global_batch_size(1)
    with strategy.scope():
        build = registry.builder(opts.model, manifest, opts.network)
        model = build()
        optimizer = _optimizer(opts, model, manifest)
    task = build.task
    step = TrainStep(
        model=model,
        optimizer=optimizer,
        task=task,
        label=manifest.label,
        global_batch=batch,
        seed=0,
    )
    choice = choose(
        manifest, data_dir=opts.data_dir, budget_bytes=budget(1, on_gpus=False), wish=opts.reader
    )
    reader = open_reader(
        provide_files(choice, manifest), manifest, global_batch=batch, seed=0, prepare=build.prepare
    )
    loop = SyncSteps(strategy, step, reader, True)
    reached = 0

    def lap() -> float:
        nonlocal reached
        until = reached + steps
        while reached < until:
            reached += loop.run(reached, until, False).steps
        return steps * batch

    return lap


def _batch_norm(*, decay: float, epsilon: float) -> keras.layers.Layer:
    return keras.layers.BatchNormalization(momentum=decay, epsilon=epsilon)


def _keras(opts: options.Options, manifest: Manifest, steps: int) -> Callable[[], float]:
    """Compiles once, and fits an epoch of `steps` batches a lap, shuffled.

    The network is ours, with Keras' own batch normalisation, as a user of Keras writes it.
    """
    batch = opts.global_batch_size(1)
    columns = records.load(manifest, opts.data_dir, "train")
    labels = columns.pop(manifest.label).numpy()
    if manifest.deep:
        model = ordinary_model(manifest, hidden_units=(128, 64, 32))
        columns = ordinary_columns(manifest, columns)
        optimizer = keras.optimizers.Adam(
            1e-3
        )  # ours leaves rows alone that a batch did not ask for
    else:
        with mock.patch.object(resnet, "BatchNormalization", _batch_norm):
            model = registry.builder(opts.model, manifest, opts.network)()
        optimizer = _optimizer(opts, model, manifest)
        columns = {name: column.numpy() for name, column in columns.items()}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    take = np.random.default_rng(0).integers(0, len(labels), batch * steps)
    columns, labels = {name: column[take] for name, column in columns.items()}, labels[take]

    def lap() -> float:
        model.fit(columns, labels, batch_size=batch, epochs=1, verbose=0)
        return steps * batch

    return lap


def _optimizer(
    opts: options.Options, model: keras.Model, manifest: Manifest
) -> keras.optimizers.Optimizer:
    examples, batch = manifest.split("train").examples, opts.global_batch_size(1)
    return learning.optimizer(
        opts,
        model,
        manifest,
        learning.TrainingSize(examples=examples, batch=batch, horizon=1_000_000),
    )


def main(kind: str, model: str, data_dir: str, steps: str, *flags: str) -> None:
    """Makes all that a lap needs, and runs laps."""
    argv = [
        "--data-dir",
        data_dir,
        "--job-dir",
        "unused",
        "--model",
        model,
        "--train-steps",
        "1000000",
        *flags,
    ]
    opts = options.parse([*argv, "--strategy", "one_device"], {})
    main_loop.configure(opts)
    make = {"ours": _ours, "keras": _keras}[kind]
    serve(make(opts, Manifest.load(data_dir), int(steps)))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Contestants on one device: our step loop through our reader, or Keras `fit` with data in memory.

`python -m tools.bench.fit ours|keras MODEL DATA_DIR STEPS FLAG...`
"""

import sys
from unittest import mock

import keras
import numpy as np

from common.manifest import Manifest
from tools.bench.serve import serve
from tools.bench.wide_deep_peer import ordinary_columns, ordinary_model
from trainer import learning, main_loop, options
from trainer.data import records
from trainer.data.placement import budget, choose, provide_files
from trainer.data.reader import open_reader
from trainer.models import registry, resnet
from trainer.sync_steps import SyncSteps
from trainer.train_step import TrainStep


def _ours(opts, manifest, steps):
    """Builds as `trainer.main_loop` does on one device, and trains on from lap to lap."""
    import tensorflow as tf

    strategy, batch = tf.distribute.OneDeviceStrategy("CPU:0"), opts.global_batch_size(1)
    with strategy.scope():
        build = registry.builder(opts.model, manifest, opts.network)
        model = build()
        optimizer = _optimizer(opts, model, manifest)
    step = TrainStep(
        model=model,
        optimizer=optimizer,
        task=build.task,
        label=manifest.label,
        global_batch=batch,
        seed=0,
    )
    choice = choose(
        manifest,
        data_dir=opts.data_dir,
        budget_bytes=budget(1, on_gpus=False),
        wish=opts.reader,
    )
    files = provide_files(choice, manifest)
    reader = open_reader(files, manifest, seed=0, global_batch=batch, prepare=build.prepare)
    loop = SyncSteps(strategy, step, reader, True)
    reached = 0

    def lap():
        nonlocal reached
        until = reached + steps
        while reached < until:
            reached += loop.run(reached, until, False).steps
        return steps * batch

    return lap


def _batch_norm(*, decay, epsilon):
    return keras.layers.BatchNormalization(momentum=decay, epsilon=epsilon)


def _keras(opts, manifest, steps):
    """Returns a function that trains a Keras model by `fit`, with `steps` shuffled batches a call.

    It returns the number of examples.

    The network is ours, with Keras' own batch normalisation, as a user of Keras writes it.
    """
    batch = opts.global_batch_size(1)
    columns = records.load(manifest, opts.data_dir, "train")
    labels = columns.pop(manifest.label).numpy()
    if manifest.deep:
        model = ordinary_model(manifest, hidden_units=(128, 64, 32))
        columns = ordinary_columns(manifest, columns)
        # Ours leaves rows alone that a batch did not ask for.
        optimizer = keras.optimizers.Adam(1e-3)
    else:
        with mock.patch.object(resnet, "BatchNormalization", _batch_norm):
            model = registry.builder(opts.model, manifest, opts.network)()
        optimizer = _optimizer(opts, model, manifest)
        columns = {name: column.numpy() for name, column in columns.items()}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    take = np.random.default_rng(0).integers(0, len(labels), batch * steps)
    columns, labels = {name: column[take] for name, column in columns.items()}, labels[take]

    def lap():
        model.fit(columns, labels, batch_size=batch, epochs=1, verbose=0)
        return steps * batch

    return lap


def _optimizer(opts, model, manifest):
    examples, batch = manifest.split("train").examples, opts.global_batch_size(1)
    size = learning.TrainingSize(examples=examples, batch=batch, horizon=1_000_000)
    return learning.optimizer(opts, model, manifest, size)


def main(kind, model, data_dir, steps, *flags):
    """Makes all that a lap needs, and runs laps."""
    line = f"--job-dir unused --train-steps 1000000 --strategy one_device --model {model}"
    opts = options.parse([*line.split(), "--data-dir", data_dir, *flags], {})
    main_loop.configure(opts)
    make = {"ours": _ours, "keras": _keras}[kind]
    serve(make(opts, Manifest.load(data_dir), int(steps)))


if __name__ == "__main__":
    main(*sys.argv[1:])

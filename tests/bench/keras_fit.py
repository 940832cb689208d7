"""A contestant: Keras `fit`, the data in memory. `python -m tests.bench.keras_fit MODEL DATA_DIR STEPS FLAG...`

The network is ours, with Keras' own batch normalisation, as a user of Keras writes it.
"""

from __future__ import annotations

import sys
from unittest import mock

import keras
import numpy as np

from tests.bench.serve import serve
from tests.bench.wide_deep_peer import ordinary_columns, ordinary_model
from trainer import job, learning, options
from trainer.base.manifest import Manifest
from trainer.data import records
from trainer.nn.models import registry, resnet


def _batch_norm(*, decay: float, epsilon: float, synchronized: bool) -> keras.layers.Layer:
    return keras.layers.BatchNormalization(momentum=decay, epsilon=epsilon)


def main(model_name: str, data_dir: str, steps: int, flags: list[str]) -> None:
    """Compiles once, and fits an epoch of `steps` batches a lap, shuffled."""
    argv = ["--data-dir", data_dir, "--job-dir", "unused", "--model", model_name, "--train-steps", "1000000", *flags]
    opts = options.parse(argv, {})
    job.configure(opts)
    manifest = Manifest.load(data_dir)
    examples, batch = manifest.split("train").examples, opts.global_batch_size(1)
    optimizer = learning.optimizer(opts, examples=examples, examples_per_step=batch, horizon_steps=1_000_000)
    columns = records.resident(manifest, data_dir, "train")
    labels = columns.pop(manifest.label).numpy()
    if manifest.deep:
        model = ordinary_model(manifest, hidden_units=(128, 64, 32))
        columns = ordinary_columns(manifest, columns)
        optimizer = keras.optimizers.Adam(1e-3)  # ours leaves rows alone that a batch did not ask for
    else:
        with mock.patch.object(resnet, "BatchNormalization", _batch_norm):
            model = registry.builder(opts.model, manifest, opts.network)()
        columns = {name: column.numpy() for name, column in columns.items()}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    take = np.random.default_rng(0).integers(0, examples, batch * steps)
    columns, labels = {name: column[take] for name, column in columns.items()}, labels[take]

    def lap() -> float:
        model.fit(columns, labels, batch_size=batch, epochs=1, verbose=0)
        return steps * batch

    serve(lap)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])

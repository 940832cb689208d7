"""Losses, metrics and weights are those of plain Keras."""

import keras
import numpy as np
import pytest
import ten_models
import tensorflow as tf
from parsed import options

from trainer import learning
from trainer.data import example_weights, records
from trainer.models import registry
from trainer.train_step import TrainStep

pytestmark = pytest.mark.long

BATCH, EPOCHS = 40, 3
WEIGHTS = ("no=3", "yes=0.5")
SGD = "--optimizer sgd --learning-rate 0.1"


def of_keras(model, optimizer):
    """The same model as users of Keras write it."""
    numbers = keras.Input((5,))
    whole = keras.Model(numbers, keras.layers.Activation("sigmoid")(model({"numbers": numbers})))
    metrics = [keras.metrics.BinaryAccuracy("accuracy"), keras.metrics.AUC(name="auc")]
    metrics += ten_models.metrics()
    whole.compile(optimizer, "binary_crossentropy", metrics=metrics)
    return whole


OFTEN = {name: (name, SGD, {}) for name in ("masked", "normalised")}
ADAMW = "--optimizer adamw --learning-rate 0.003 --weight-decay 0.5"
# Models, flags, and options of Keras' SGD, or None of AdamW.
CASES = OFTEN | {
    "compiled": ("masked", f"{SGD} --jit-compile", {}),
    "clipped": ("masked", f"{SGD} --clip-norm 0.1", {"global_clipnorm": 0.1}),
    "adamw": ("masked", ADAMW, None),
}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[] if c in OFTEN else pytest.mark.cluster) for c in CASES]
)
def test_training_agrees_with_keras(data, table, case):
    model, flags, sgd = CASES[case]
    build = registry.builder(f"ten_models:{model}", table, {})
    prepare = example_weights.weighted(build.prepare, table, WEIGHTS)
    ours, inner = build(), build()
    ours.set_weights(inner.get_weights())
    adamw = keras.optimizers.AdamW(0.003, weight_decay=0.5)
    adamw.exclude_from_weight_decay(var_names=["bias"])
    theirs = of_keras(inner, adamw if sgd is None else keras.optimizers.SGD(0.1, 0.9, **sgd))
    split = prepare(records.load(table, str(data), "train"))
    size = len(split["label"]) // BATCH * BATCH
    split = {name: column[:size].numpy() for name, column in split.items()}
    history = theirs.fit(
        split["numbers"],
        split["label"][:, None],
        sample_weight=np.where(split["label"], 0.5, 3.0),
        batch_size=BATCH,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
    ).history
    opts = options(f"--model cnn {flags}")
    step = TrainStep(
        model=ours,
        optimizer=learning.optimizer(opts, ours, table),
        task=build.task,
        label="label",
        global_batch=BATCH,
        seed=0,
        jit_compile=opts.jit_compile,
    )
    take = tf.function(lambda batch: step(batch, tf.constant(0, tf.int64), 0, BATCH))
    batches = [*tf.data.Dataset.from_tensor_slices(split).batch(BATCH)]
    for epoch in range(EPOCHS):
        sums = np.array([take(batch) for batch in batches])
        seen = {"loss": sums[:, 0].mean(), **build.task.results(sums[:, 1:].sum(axis=0))}
        expected = {name: values[epoch] for name, values in history.items()}
        assert seen == pytest.approx(expected, rel=1e-4)
    for one, other in zip(ours.get_weights(), inner.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)

"""A network of your own. Keywords of `network` and of `optimizer` are flags of the training."""

import keras


def network(manifest, *, width=32, dropout=0.1):
    """Returns a model from the images of a dataset to one logit for each class."""
    image = manifest.feature("image")
    return keras.Sequential(
        [
            keras.Input(image.shape),
            keras.layers.Rescaling(1 / image.value_range[1]),
            keras.layers.Flatten(),
            keras.layers.Dense(width, "relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(manifest.outputs),
        ]
    )


def optimizer(manifest, schedule, *, decay=0.01):
    """Returns the optimizer; the schedule is the learning rate."""
    return keras.optimizers.AdamW(schedule, weight_decay=decay)

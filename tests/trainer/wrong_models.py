"""Models that would be trained wrong, or not at all: `--model wrong_models:softmax`. Each says what it is told."""

import functools
import itertools
from collections.abc import Callable

import keras
import tensorflow as tf

from trainer.base.manifest import Manifest

L = keras.layers
_BUILT = itertools.count()


def _with(*layers, units: int = 10, activation: str | None = None, last: tuple = ()) -> keras.Sequential:
    ends = [L.Dense(units, activation), *last]
    return keras.Sequential([L.Rescaling(1 / 16), L.Flatten(), *layers, *ends])


def _giving(outputs: Callable[[keras.KerasTensor], object]) -> keras.Model:
    inputs = keras.Input((8, 8, 1))
    return keras.Model(inputs, outputs(L.Flatten()(inputs)))


def _untrained() -> keras.Sequential:
    model = _with()
    model.trainable = False
    return model


def _words() -> keras.Sequential:
    words = ["1", "2"] if next(_BUILT) % 2 else ["2", "1"]
    return _with(Texts(), L.StringLookup(vocabulary=words, output_mode="one_hot"))


class Shares(L.Layer):
    def call(self, x):
        return tf.nn.relu(x) / tf.reduce_sum(tf.nn.relu(x), axis=1, keepdims=True)


class OverBatch(L.Layer):
    def call(self, x):
        return tf.reduce_mean(x, axis=0, keepdims=True)

    def compute_output_shape(self, shape):
        return shape


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return {}


class Untracked(L.Layer):
    def build(self, shape):
        self.scale = tf.Variable(tf.ones([shape[-1]]), name="scale")

    def call(self, x):
        return x * self.scale


class Noise(L.Layer):
    def build(self, shape):
        self.generator = tf.random.Generator.from_seed(1)

    def call(self, x, training=False):
        return x + self.generator.normal(tf.shape(x)) if training else x


class Cut(L.Layer):
    def call(self, x):
        return tf.stop_gradient(x)


class Texts(L.Layer):
    """The first pixel of an image as a word."""

    def call(self, x):
        return tf.strings.as_string(tf.cast(x[:, 0] * 16, tf.int32))

    def compute_output_spec(self, x):
        return keras.KerasTensor((x.shape[0],), "string")


class Python(L.Layer):
    def call(self, x):
        return tf.ensure_shape(tf.py_function(lambda x: x, [x], tf.float32), x.shape)


class Counting(L.Layer):
    """Centres by a mean that it keeps, as batch normalisation does, but of what one replica sees."""

    def build(self, shape):
        self.mean = self.add_weight(shape=shape[-1:], initializer="zeros", trainable=False, name="mean")

    def call(self, x, training=False):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(x, axis=0))
        return x - self.mean


class TfRandom(L.Layer):
    def call(self, x, training=False):
        return x + tf.random.normal(tf.shape(x)) if training else x


class Half(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = L.Dense(10, name="used"), L.Dense(10, name="unused")

    def call(self, x):
        x = keras.ops.reshape(x, (-1, 64))
        self.unused(x)
        return self.used(x)


LOGITS = "and the task's are [N, 10], logits"
# By the name of the function what it builds, and what is said of that.
REFUSED = {
    "softmax": (
        lambda: _with(activation="softmax"),
        "its outputs are probabilities already (by Softmax), and the loss takes logits; leave out the last activation",
    ),
    "softmax_layer": (lambda: _with(last=(L.Softmax(), L.Reshape((10,)))), "probabilities already (by Softmax)"),
    "sigmoid": (lambda: _with(last=(L.Activation("sigmoid"),)), "its outputs are probabilities already (by Sigmoid)"),
    "shares": (
        lambda: _with(last=(L.Activation("softplus"), Shares())),
        "are probabilities already, and the loss takes logits",
    ),
    "narrow": (lambda: _with(units=1), f"it has 1 outputs, {LOGITS}, one for each class"),
    "wide": (lambda: _with(units=11), f"it has 11 outputs, {LOGITS}"),
    "images": (
        lambda: keras.Sequential([L.Rescaling(1 / 16), L.Dense(10)]),
        f"its outputs for 32 examples are float32 (32, 8, 8, 10), {LOGITS}",
    ),
    "over_batch": (lambda: _with(last=(OverBatch(),)), "its outputs for 32 examples are float32 (1, 10)"),
    "two_outputs": (lambda: _giving(lambda x: [L.Dense(10)(x), L.Dense(10)(x)]), f"its outputs are a list, {LOGITS}"),
    "outputs_by_name": (lambda: _giving(lambda x: {"digit": L.Dense(10)(x)}), f"its outputs are a dict, {LOGITS}"),
    "own_step": (lambda: OwnStep([L.Flatten(), L.Dense(10)]), "has a train_step of its own, which is not called here"),
    "no_model": (lambda: L.Dense(10), "gives a Dense, which is no keras.Model"),
    "untracked": (lambda: _with(Untracked()), "it uses a tf.Variable (sequential"),
    "generator": (lambda: _with(Noise()), "it uses a tf.Variable ("),
    "cut": (lambda: _with(last=(Cut(),)), "no weight has a gradient"),
    "nothing": (_untrained, "it has no weight to train"),
    "without_end": (lambda: _with(last=(L.Rescaling(float("inf")),)), "the untrained model's outputs are not finite"),
    "vocabulary": (_words, "it has other weights, vocabularies or statistics each time that it is built"),
    "python": (lambda: _with(Python()), "it calls Python in its graph, which the exported model cannot take along"),
}
COUNTING = "sets sequential/counting/mean by the examples that it sees, and several replicas see others each"
ON_SEVERAL = {"counting": (lambda: _with(Counting()), f"a layer {COUNTING}")}
RANDOM = "draws by tf.random (RandomStandardNormal), which a resumed job does not repeat; use keras.random"
UNUSED = "not trained, because the loss does not depend on them: half/unused/kernel, half/unused/bias"
TOLD = {"tf_random": (lambda: _with(TfRandom()), f"it {RANDOM}"), "unused": (Half, UNUSED)}
SAID = {name: said.lower() for name, (_, said) in {**REFUSED, **ON_SEVERAL, **TOLD}.items()}


def _build(make: Callable[[], object], manifest: Manifest) -> object:
    return make()


globals().update({n: functools.partial(_build, make) for n, (make, _) in {**REFUSED, **ON_SEVERAL, **TOLD}.items()})

"""Models that would be trained wrong, or not at all: `--model wrong_models:softmax`. Each says what it is told."""

import itertools

import keras
import tensorflow as tf

from trainer.base.manifest import Manifest

L = keras.layers
_BUILT = itertools.count()


def _with(*layers, units: int = 10, activation: str | None = None, last: tuple = ()) -> keras.Sequential:
    ends = [L.Dense(units, activation), *last]
    return keras.Sequential([L.Rescaling(1 / 16), L.Flatten(), *layers, *ends])


def softmax(manifest: Manifest) -> keras.Model:
    """Its outputs are probabilities already (by Softmax), and the loss takes logits; leave out the last activation"""
    return _with(activation="softmax")


def softmax_layer(manifest: Manifest) -> keras.Model:
    """Its outputs are probabilities already (by Softmax)"""
    return _with(last=(L.Softmax(), L.Reshape((10,))))


def sigmoid(manifest: Manifest) -> keras.Model:
    """Its outputs are probabilities already (by Sigmoid)"""
    return _with(last=(L.Activation("sigmoid"),))


class Shares(L.Layer):
    def call(self, x):
        return tf.nn.relu(x) / tf.reduce_sum(tf.nn.relu(x), axis=1, keepdims=True)


def shares(manifest: Manifest) -> keras.Model:
    """Its outputs are probabilities already, and the loss takes logits"""
    return _with(last=(L.Activation("softplus"), Shares()))


def narrow(manifest: Manifest) -> keras.Model:
    """It has 1 outputs, and the task's are [N, 10], logits, one for each class"""
    return _with(units=1)


def wide(manifest: Manifest) -> keras.Model:
    """It has 11 outputs, and the task's are [N, 10], logits"""
    return _with(units=11)


def images(manifest: Manifest) -> keras.Model:
    """Its outputs for 32 examples are float32 (32, 8, 8, 10), and the task's are [N, 10], logits"""
    return keras.Sequential([L.Rescaling(1 / 16), L.Dense(10)])


class OverBatch(L.Layer):
    def call(self, x):
        return tf.reduce_mean(x, axis=0, keepdims=True)

    def compute_output_shape(self, shape):
        return shape


def over_batch(manifest: Manifest) -> keras.Model:
    """Its outputs for 32 examples are float32 (1, 10)"""
    return _with(last=(OverBatch(),))


def two_outputs(manifest: Manifest) -> keras.Model:
    """Its outputs are a list, and the task's are [N, 10], logits"""
    inputs = keras.Input((8, 8, 1))
    x = L.Flatten()(inputs)
    return keras.Model(inputs, [L.Dense(10)(x), L.Dense(10)(x)])


def outputs_by_name(manifest: Manifest) -> keras.Model:
    """Its outputs are a dict, and the task's are [N, 10], logits"""
    inputs = keras.Input((8, 8, 1))
    return keras.Model(inputs, {"digit": L.Dense(10)(L.Flatten()(inputs))})


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return {}


def own_step(manifest: Manifest) -> keras.Model:
    """Has a train_step of its own, which is not called here"""
    return OwnStep([L.Flatten(), L.Dense(10)])


def no_model(manifest: Manifest) -> object:
    """Gives a Dense, which is no keras.Model"""
    return L.Dense(10)


class Untracked(L.Layer):
    def build(self, shape):
        self.scale = tf.Variable(tf.ones([shape[-1]]), name="scale")

    def call(self, x):
        return x * self.scale


def untracked(manifest: Manifest) -> keras.Model:
    """It uses a tf.Variable (sequential"""
    return _with(Untracked())


class Noise(L.Layer):
    def build(self, shape):
        self.generator = tf.random.Generator.from_seed(1)

    def call(self, x, training=False):
        return x + self.generator.normal(tf.shape(x)) if training else x


def generator(manifest: Manifest) -> keras.Model:
    """It uses a tf.Variable ("""
    return _with(Noise())


class Cut(L.Layer):
    def call(self, x):
        return tf.stop_gradient(x)


def cut(manifest: Manifest) -> keras.Model:
    """No weight has a gradient"""
    return _with(last=(Cut(),))


def nothing(manifest: Manifest) -> keras.Model:
    """It has no weight to train"""
    model = _with()
    model.trainable = False
    return model


def without_end(manifest: Manifest) -> keras.Model:
    """The untrained model's outputs are not finite"""
    return _with(last=(L.Rescaling(float("inf")),))


def vocabulary(manifest: Manifest) -> keras.Model:
    """It has other weights, vocabularies or statistics each time that it is built"""
    words = ["1", "2"] if next(_BUILT) % 2 else ["2", "1"]
    lookup = L.StringLookup(vocabulary=words, output_mode="one_hot")
    return _with(Texts(), lookup)


class Texts(L.Layer):
    """The first pixel of an image as a word."""

    def call(self, x):
        return tf.strings.as_string(tf.cast(x[:, 0] * 16, tf.int32))

    def compute_output_spec(self, x):
        return keras.KerasTensor((x.shape[0],), "string")


class Python(L.Layer):
    def call(self, x):
        return tf.ensure_shape(tf.py_function(lambda x: x, [x], tf.float32), x.shape)


def python(manifest: Manifest) -> keras.Model:
    """It calls Python in its graph, which the exported model cannot take along"""
    return _with(Python())


class Counting(L.Layer):
    """Centres by a mean that it keeps, as batch normalisation does, but of what one replica sees."""

    def build(self, shape):
        self.mean = self.add_weight(shape=shape[-1:], initializer="zeros", trainable=False, name="mean")

    def call(self, x, training=False):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(x, axis=0))
        return x - self.mean


def counting(manifest: Manifest) -> keras.Model:
    """A layer sets sequential/counting/mean by the examples that it sees, and several replicas see others each"""
    return _with(Counting())


class TfRandom(L.Layer):
    def call(self, x, training=False):
        return x + tf.random.normal(tf.shape(x)) if training else x


def tf_random(manifest: Manifest) -> keras.Model:
    """It draws by tf.random (RandomStandardNormal), which a resumed job does not repeat; use keras.random"""
    return _with(TfRandom())


class Half(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = L.Dense(10, name="used"), L.Dense(10, name="unused")

    def call(self, x):
        x = keras.ops.reshape(x, (-1, 64))
        self.unused(x)
        return self.used(x)


def unused(manifest: Manifest) -> keras.Model:
    """Not trained, because the loss does not depend on them: half/unused/kernel, half/unused/bias"""
    return Half()


ON_SEVERAL, TOLD = [counting], [tf_random, unused]
REFUSED = [softmax, softmax_layer, sigmoid, shares, narrow, wide, images, over_batch, two_outputs, outputs_by_name]
REFUSED += [own_step, no_model, untracked, generator, cut, nothing, without_end, vocabulary, python]

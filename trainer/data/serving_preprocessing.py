"""What the converter makes of a table's values, for a model that is sent them as they are.

    serving_preprocessing(manifest, {"age": [31.0, nan], "paid": ["True", ""]})      # 31 and the default; `true` and the default

It is in the exported model alone: what training reads has been converted. Of converted values it changes none.
"""

from collections.abc import Mapping

import tensorflow as tf

from common.manifest import Feature, Manifest
from common.spellings import EITHER, FALSE, TRUE, marks


def serving_preprocessing(manifest: Manifest, columns: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """A table's columns [N] with defaults where values are missing; what is no table's is given back as it is.

    A float is missing where it is NaN, and any value where it is what the schema says stands for a missing one. The spellings
    of true and false become one of each.

    Raises:
      tf.errors.InvalidArgumentError: When it runs, if a value is missing that has no default, a float is infinite, or a
        boolean is neither: the converter has refused such rows, and no model knows what they mean. It names the column and
        the first such row.
    """
    if not manifest.is_table:
        return dict(columns)
    return {name: _column(manifest.feature(name), values) for name, values in columns.items()}


def _column(feature: Feature, values: tf.Tensor) -> tf.Tensor:
    missing = tf.zeros_like(values, tf.bool)
    if values.dtype.is_floating:
        missing = tf.math.is_nan(values)
    if known := marks(feature.missing or (), feature.dtype):
        missing |= tf.reduce_any(tf.equal(values[:, tf.newaxis], tf.constant(known, values.dtype)), axis=1)
    if feature.default is not None:
        values = tf.where(missing, tf.constant(feature.default, values.dtype), values)
    elif values.dtype.is_floating or known:
        _refuse(missing, feature, "is missing, and the dataset's schema has no default for it")
    if values.dtype.is_floating:
        _refuse(tf.math.is_inf(values), feature, "is infinite")
    if not feature.boolean:
        return values
    plain = tf.strings.lower(tf.strings.strip(values))[:, tf.newaxis]
    is_true, is_false = (tf.reduce_any(tf.equal(plain, tf.constant(spellings)), axis=1) for spellings in (TRUE, FALSE))
    _refuse(~(is_true | is_false), feature, f"is no boolean, which is {EITHER}")
    return tf.where(is_true, TRUE[0], FALSE[0])


def _refuse(wrong: tf.Tensor, feature: Feature, what: str) -> None:
    row = tf.strings.as_string(tf.argmax(wrong))
    tf.debugging.Assert(~tf.reduce_any(wrong), [tf.strings.join([f"{feature.name}: a value {what} (row ", row, ")"])])

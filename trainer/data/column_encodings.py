"""Columns of a table as a wide and deep model takes them: numbers, and rows of tables of weights.

All categories that have equally many weights share one table, in which each encoding has a range of
rows of its own, so that a model gathers once for all of them. Row numbers follow from the values
alone. So they are computed once for a split in memory, and in the exported model from the values
that a client sends.

    prepare(manifest, {"fare": ..., "company": ..., "label": ...})
    # {"deep_numbers": float32 [N, 1], "deep_embedding_10": int64 [N, 1], "label": int64 [N]}

Everything here is graph operations without state, so that it runs in a worker's input, under any
strategy, and in a SavedModel.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from common.manifest import Encoding, Manifest

Columns = dict[str, tf.Tensor]
# Number of buckets that makes a hash of a string a positive 63-bit number.
_FINGERPRINTS = 2**63 - 1


def inputs(part: str, manifest: Manifest) -> dict[str, list[Encoding]]:
    """Returns the encodings of a part of the model, by the name of the tensor that holds them.

    The encodings of a tensor are alike: numbers (`PART_numbers`), one-hot categories
    (`PART_one_hot`), or embeddings of one dimension, such as `PART_embedding_10`. The tensor has a
    column for each, in the order of the manifest. Names are sorted.

    Args:
      part: `deep` or `wide`.
      manifest: Manifest of a table.
    """
    groups: dict[str, list[Encoding]] = {}
    for encoding in getattr(manifest, part):
        size = encoding.embedding
        name = (
            "numbers" if encoding.kind == "numeric" else f"embedding_{size}" if size else "one_hot"
        )
        groups.setdefault(f"{part}_{name}", []).append(encoding)
    return dict(sorted(groups.items()))


def prepare(manifest: Manifest, columns: Mapping[str, tf.Tensor]) -> Columns:
    """Returns the tensors that a wide and deep model takes, and the label unchanged.

    Args:
      manifest: Manifest of a table.
      columns: Columns of the dataset by name, [N]; the label may be missing.

    Returns:
      For each name that `inputs` returns for `deep` and `wide`, a tensor with a column for each of
      its encodings, [N, encodings]: float32 with values of features, shifted and scaled by the mean
      and standard deviation of the training split; or int64 with row numbers of the table of
      weights that its encodings share. Also the label, if `columns` has it.
    """
    prepared = {name: column for name, column in columns.items() if name == manifest.label}
    for name, encodings in {**inputs("deep", manifest), **inputs("wide", manifest)}.items():
        if encodings[0].categories:
            firsts = np.cumsum([0, *(encoding.categories for encoding in encodings)])
            rows = [
                first + category(e, columns) for first, e in zip(firsts, encodings, strict=False)
            ]
            prepared[name] = tf.stack(rows, axis=1)
            continue
        numbers = [encoding.columns[0] for encoding in encodings]
        statistics = [manifest.feature(number).statistics for number in numbers]
        mean, std = np.array(
            [(summary.mean, summary.std) for summary in filter(None, statistics)], np.float64
        ).T
        # In float64, as float32 would round large integers before the mean is taken off.
        values = tf.stack([tf.cast(columns[number], tf.float64) for number in numbers], axis=1)
        prepared[name] = tf.cast(tf.math.divide_no_nan(values - mean, std), tf.float32)
    return prepared


def category(encoding: Encoding, columns: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns the category of each row by a `buckets`, `vocabulary`, `hash` or `cross` encoding.

    Returns:
      int64 [N], in `range(encoding.categories)`.
    """
    values = columns[encoding.columns[0]]
    if encoding.kind == "buckets":
        # Floats are compared as float32, so that a stored 0.1 reaches the boundary 0.1. Integers
        # may need more bits than float32 has.
        values = values if values.dtype == tf.float32 else tf.cast(values, tf.float64)
        boundaries = tf.constant(encoding.boundaries, values.dtype)
        return tf.searchsorted(boundaries, values, side="right", out_type=tf.int64)
    if encoding.vocabulary is not None:
        return _position(encoding.vocabulary, values)
    texts = [_texts(columns[name]) for name in encoding.columns]
    return tf.strings.to_hash_bucket_fast(tf.strings.join(texts, "_X_"), encoding.hash_buckets)


def _texts(values: tf.Tensor) -> tf.Tensor:
    return values if values.dtype == tf.string else tf.strings.as_string(values)


def _position(vocabulary: Sequence[Any], values: tf.Tensor) -> tf.Tensor:
    """Returns the position of each value in the vocabulary, or its length for others.

    It does without a lookup table of TensorFlow's, which would be state.
    """
    size = len(vocabulary)
    vocabulary = tf.constant(vocabulary, values.dtype)
    hashes, wanted = (
        tf.strings.to_hash_bucket_fast(_texts(x), _FINGERPRINTS) for x in (vocabulary, values)
    )
    order = tf.argsort(hashes)
    at = tf.gather(order, tf.minimum(tf.searchsorted(tf.gather(hashes, order), wanted), size - 1))
    return tf.cast(tf.where(tf.equal(tf.gather(vocabulary, at), values), at, size), tf.int64)

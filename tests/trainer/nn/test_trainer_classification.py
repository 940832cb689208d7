"""What is computed of a classification's outputs, against the definitions."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
from trainer.nn.tasks.classification import Classification  # noqa: E402

TASK, EXAMPLES = Classification(("no", "yes")), 400


@pytest.fixture
def outputs() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, EXAMPLES)
    return (draw.normal(size=(EXAMPLES, 2)) + np.eye(2)[labels]).astype(np.float32), labels


def test_a_score_is_by_definition_however_the_split_is_cut_into_batches(outputs):
    logits, labels = outputs
    batches = [(logits[i : i + 150], labels[i : i + 150]) for i in range(0, EXAMPLES, 150)]
    means = sum(TASK.sums(*batch).numpy() for batch in batches) / EXAMPLES
    score = TASK.score(means.tolist(), [TASK.evidence(*batch) for batch in batches])
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    positive, negative = probabilities[labels == 1, 1], probabilities[labels == 0, 1]
    assert score == pytest.approx(
        {
            "loss": -np.log(probabilities[np.arange(EXAMPLES), labels]).mean(),
            "accuracy": (probabilities.argmax(axis=1) == labels).mean(),
            "auc": (positive[:, None] > negative).mean(),
        },
        rel=1e-5,
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_logits_of_any_type_and_labels_of_any_make_sums_and_answers_in_float32(outputs, dtype):
    logits, labels = outputs
    logits = tf.cast(logits, dtype)
    exact = TASK.sums(tf.cast(logits, tf.float32), labels)
    for kind in ("int32", "int64", "uint8"):
        np.testing.assert_array_equal(TASK.sums(logits, labels.astype(kind)), exact)
    answer = TASK.answer(logits)
    assert answer["probabilities"].dtype == tf.float32
    np.testing.assert_allclose(tf.reduce_sum(answer["probabilities"], axis=1), 1, rtol=1e-6)
    assert [name.decode() for name in answer["class_name"].numpy()] == [
        TASK.class_names[i] for i in answer["class_index"].numpy()
    ]


def test_of_one_class_alone_there_is_no_auc_and_accuracy_ranks():
    score = TASK.score([0.5, 0.75], [(np.zeros(3), np.ones(3, np.int64))])
    assert score == {"loss": 0.5, "accuracy": 0.75}
    assert TASK.rank(score) > TASK.rank({"loss": 0.6, "accuracy": 0.75})
    assert TASK.rank({"loss": 9.0, "accuracy": 0.1, "auc": 0.9}) > TASK.rank({"loss": 0.0, "accuracy": 1.0, "auc": 0.8})

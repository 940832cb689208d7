import numpy as np
import pytest
import tensorflow as tf

from trainer.nn.accumulation import accumulated

TABLE, WEIGHT, UNUSED = (tf.Variable(tf.random.stateless_normal(shape, [0, 1])) for shape in ([5, 2], [2], [3]))
BATCH = {"rows": tf.constant([0, 3, 3, 1, 0, 3, 4]), "label": tf.range(7.0)}


def differentiate(batch, step, first, count):
    with tf.GradientTape() as tape:
        outputs = tf.reduce_sum(tf.gather(TABLE, batch["rows"]) * WEIGHT, axis=1)
        place = tf.cast(first + tf.range(count), tf.float32)  # as dropout goes by it
        loss = tf.reduce_sum((outputs - batch["label"]) ** 2 * place)
    return tf.stack([loss, tf.cast(count, tf.float32)]), tape.gradient(loss, [TABLE, WEIGHT, UNUSED])


@pytest.mark.parametrize("count", [7, tf.constant(7)], ids=["static", "dynamic"])
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_the_sum_over_the_parts_is_that_of_the_whole(parts, count):
    values, (table, weight, unused) = accumulated(differentiate, parts, BATCH, tf.constant(0), 10, count)
    expected, (whole_table, whole_weight, _) = differentiate(BATCH, tf.constant(0), 10, 7)
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    np.testing.assert_allclose(weight, whole_weight, rtol=1e-5)
    np.testing.assert_allclose(tf.convert_to_tensor(table), tf.convert_to_tensor(whole_table), rtol=1e-5)
    assert unused is None
    # Of a table still the rows alone, of a part after the other as in the batch.
    np.testing.assert_array_equal(table.indices, BATCH["rows"])


def test_a_part_begins_when_the_one_before_has_its_gradients():
    function = tf.function(lambda: accumulated(differentiate, 2, BATCH, tf.constant(0), 0, 7)[0])
    graph = function.get_concrete_function().graph
    gathers = [op for op in graph.get_operations() if op.type == "ResourceGather"]
    before, after = gathers
    reached, waiting = set(), [after]
    while waiting:
        op = waiting.pop()
        if op not in reached:
            reached.add(op)
            waiting += [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
    assert before in reached

import numpy as np

from trainer.data.order import batch_indices


def test_order_is_that_of_earlier_versions():
    """Each epoch has every example once, in an order of its own."""
    order = {"examples": 7, "seed": 7, "global_batch": 8, "first": 0, "count": 8}
    indices = np.concatenate([batch_indices(step, **order) for step in range(2)])
    assert indices.tolist() == [6, 1, 4, 5, 2, 0, 3, 6, 5, 4, 2, 1, 0, 3, 6, 2]

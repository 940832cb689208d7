"""Weights by name, between models that one function has built."""

import keras
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.nn import weights

L = keras.layers


@given(names=st.permutations("abcd"))
@pytest.mark.long
def test_digest_follows_order_of_weights(names):
    """Slots of an optimizer go by the order of weights, so two orders have two digests."""
    x = keras.Input([3])
    ordered, other = (
        keras.Model(x, [L.Dense(2, name=name)(x) for name in order])
        for order in (sorted(names), names)
    )
    assert (weights.digest(other) == weights.digest(ordered)) == (names == sorted(names))

"""Weights by name, between models that one function has built."""

import keras
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.nn import weights

L = keras.layers


def layered(names):
    return keras.Sequential([keras.Input((3,)), *(L.Dense(3, name=name) for name in names)])


@given(
    st.lists(st.sampled_from(["a", "head_3", "b_2_c"]), unique=True, min_size=1), st.integers(1, 3)
)
@pytest.mark.long
def test_names_of_author_identify_layers(names, others):
    """A layer that its author has named has one key, wherever it is; others have others."""
    named = weights.named(layered([*names, *[None] * others]))
    turned = weights.named(layered([*reversed(names), *[None] * others]))
    assert len(named) == 2 * (len(names) + others)
    assert named.keys() == turned.keys()
    for key, weight in named.items():
        if weight.path.split("/")[0] in names:
            assert turned[key].path == weight.path


def test_values_of_another_model_are_refused():
    with pytest.raises(ValueError, match="b/"):
        weights.put(weights.named(layered(["a"])), layered(["b"]))


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

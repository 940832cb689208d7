"""Weights by name, between models that one function has built."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.manifest import Manifest
from trainer.models import registry
from trainer.nn import weights

L = keras.layers


@pytest.mark.parametrize(
    "name", ["functional", "sequential", "subclassed", "seed_generator", "lstm"]
)
def test_weights_fit_next_model_of_function(digits, name):
    build = registry.builder(f"own_models:{name}", Manifest.load(digits), {})
    model, another = build(), build()
    named = weights.named(model)
    assert {id(weight) for weight in named.values()} == {id(weight) for weight in model.weights}
    draw = np.random.default_rng(0)
    values = {name: draw.normal(size=weight.shape) for name, weight in named.items()}
    weights.put(values, model)
    weights.put(values, another)
    images = {"image": draw.integers(0, 17, (5, 8, 8, 1)).astype(np.uint8)}
    answers = model(images)
    assert np.ptp(answers) > 0
    np.testing.assert_array_equal(another(images), answers)


def layered(names: list[str | None]) -> keras.Model:
    return keras.Sequential([keras.Input((3,)), *(L.Dense(3, name=name) for name in names)])


@given(
    st.lists(st.sampled_from(["a", "head_3", "b_2_c"]), unique=True, min_size=1), st.integers(1, 3)
)
def test_names_of_author_identify_layers(names, others):
    """A layer that its author has named has one key, wherever it is, and layers without names have others."""
    named = weights.named(layered([*names, *[None] * others]))
    turned = weights.named(layered([*reversed(names), *[None] * others]))
    assert len(named) == 2 * (len(names) + others)
    assert named.keys() == turned.keys()
    for key, weight in named.items():
        if weight.path.split("/")[0] in names:
            assert turned[key].path == weight.path


def test_values_of_another_model_are_refused():
    values = {name: weight.numpy() for name, weight in weights.named(layered(["a"])).items()}
    with pytest.raises(ValueError, match="b/"):
        weights.put(values, layered(["b"]))


@given(names=st.permutations("abcd"))
def test_digest_follows_order_of_weights(names):
    """Slots of an optimizer go by the order of the weights, so models of two orders have two digests."""
    x = keras.Input([3])
    ordered, other = (
        keras.Model(x, [L.Dense(2, name=name)(x) for name in order])
        for order in (sorted(names), names)
    )
    assert (weights.digest(other) == weights.digest(ordered)) == (names == sorted(names))

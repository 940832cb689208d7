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
OWN = ["functional", "sequential", "sequential_with_input", "subclassed", "seed_generator", "lstm"]


@pytest.mark.parametrize("name", OWN)
def test_weights_go_by_name_from_one_model_of_a_function_to_the_next(digits, name):
    manifest = Manifest.load(digits)
    build = registry.builder(f"own_models:{name}", manifest, {})
    model, another = build(), build()
    found = weights.named(model)
    assert {id(weight) for weight in found.values()} == {id(weight) for weight in model.weights}
    assert len(found) >= 4
    draw = np.random.default_rng(0)
    values = {n: draw.normal(size=w.shape).astype(np.float32) for n, w in found.items()}
    for other in (model, another):
        weights.put(values, other)
    images = {"image": draw.integers(0, 17, (5, 8, 8, 1)).astype(np.uint8)}
    answers = model(images)
    assert answers.shape == (5, 10)
    np.testing.assert_array_equal(another(images), answers)


def layered(names: list[str]) -> keras.Model:
    x = inputs = keras.Input((3,))
    for name in names:
        x = L.Dense(3, name=name)(x)
    return keras.Model(inputs, x)


@pytest.mark.cluster
@given(st.lists(st.sampled_from(["a", "head_3", "b_2_c"]), unique=True, min_size=1), st.integers(1, 3))
def test_layers_that_their_author_has_named_are_not_taken_for_each_other(names, others):
    found = weights.named(layered([*names, *[None] * others]))
    assert len(found) == 2 * (len(names) + others)
    turned = weights.named(layered([*names[::-1], *[None] * others]))
    assert found.keys() == turned.keys()
    for name in names:
        (key,) = [key for key, weight in found.items() if weight.path == f"{name}/kernel"]
        assert turned[key].path == f"{name}/kernel"


def test_values_of_another_model_are_refused_with_the_names():
    values = {name: weight.numpy() for name, weight in weights.named(layered(["a"])).items()}
    with pytest.raises(ValueError, match="b/"):
        weights.put(values, layered(["b"]))

import collections
import itertools

import numpy as np

from trainer.data.augmentation import crop_and_flip


def test_crops_are_uniform():
    """An image becomes one of 18 crops of its frame, all as often as the others.

    Another seed or step gives other crops. Replicas are compared with one another by
    test_replicas_learn_as_one.
    """
    image = np.random.default_rng(0).integers(0, 256, (6, 5, 1), np.uint8)
    framed = np.pad(image, ((1, 1), (1, 1), (0, 0)))
    crops = {
        framed[down : down + 6, across : across + 5][:, ::mirror].tobytes()
        for down, across, mirror in itertools.product(range(3), range(3), (1, -1))
    }
    images, at = np.stack([image] * 4000), np.arange(4000)
    changed, *others = (
        crop_and_flip(images, seed=seed, step=step, positions=at, pad=1).numpy()
        for seed, step in ((5, 9), (6, 9), (5, 10), (5, 2**33))
    )
    assert len({each.tobytes() for each in (changed, *others)}) == 4
    counts = collections.Counter(crop.tobytes() for crop in changed)
    assert counts.keys() == crops
    # Chi-square of 17 degrees of freedom, p = 0.001.
    assert sum((n - 4000 / 18) ** 2 for n in counts.values()) / (4000 / 18) < 40.8

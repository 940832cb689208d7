import io

import numpy as np
import tensorflow as tf
from numbered import picture
from PIL import Image

from trainer.data import features

SIZES = [(40, 60), (61, 40), (24, 32), (25, 30), (7, 90)]
FILES = [picture(h, w, kind, seed=h) for h, w in SIZES for kind in ("PNG", "JPEG")]


def test_an_image_of_the_right_size_is_kept_to_the_pixel():
    for kind in ("PNG", "JPEG"):
        file = picture(24, 32, kind)
        expected = tf.io.decode_image(file, 3).numpy()
        assert np.array_equal(features.decode_images(tf.constant([file]), (24, 32, 3))[0], expected)


def test_grey_and_colour_are_what_the_shape_says():
    assert features.decode_images(tf.constant(FILES[:2]), (8, 8, 1)).shape == (2, 8, 8, 1)
    gray = io.BytesIO()
    Image.new("L", (9, 9), 77).save(gray, "PNG")
    assert (features.decode_images(tf.constant([gray.getvalue()]), (8, 8, 3)).numpy() == 77).all()

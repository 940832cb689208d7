import numpy as np
import pytest
import tensorflow as tf
from numbered import picture

from trainer.data.features import decode_images


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("channels", [1, 3])
def test_image_of_right_size_keeps_pixels(kind, channels):
    file = picture(24, 32, kind)
    expected = tf.io.decode_image(file, channels)
    np.testing.assert_array_equal(
        decode_images(tf.constant([file]), (24, 32, channels))[0], expected
    )

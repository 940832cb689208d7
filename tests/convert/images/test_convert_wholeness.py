"""A file that passes here is one that TensorFlow's decoder takes, which has the last word in training."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_files import chunks, damaged, join, kinds

from components.convert.images import headers
from trainer.base.errors import UserError

FILES = kinds()


def passes(data: bytes) -> bool:
    try:
        headers.require_whole(data, "place")
    except UserError as error:
        assert str(error).startswith("place: ") and "\n" not in str(error)
        return False
    return True


@pytest.mark.parametrize("kind", FILES)
def test_no_file_passes_that_is_cut_anywhere(kind):
    data = FILES[kind]
    assert passes(data) and passes(data + b"what others put behind it")
    assert not any(map(passes, (data[:-lost] for lost in [*range(1, 16), *range(16, len(data), 97)])))
    headers.decode(data, "place", channels=3, size=(20, 30))
    with pytest.raises(UserError, match=r"^place: broken image"):
        headers.decode(data[:-1], "place", channels=3, size=(20, 30))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: [parts[0], *parts], "in their order"),
        (lambda parts: [parts[0], (b"ABCD", b""), *parts[1:]], "in their order"),
        (lambda parts: [*parts[:-1], (b"PLTE", bytes(3)), parts[-1]], "in their order"),
        (lambda parts: [*parts[:-1], (b"teXt", b""), parts[-2], parts[-1]], "in their order"),
        (lambda parts: [parts[0], (b"IDAT", parts[1][1][:-1]), parts[-1]], "pixels are missing"),
        (lambda parts: [(b"IHDR", parts[0][1][:10] + b"\4\0\0"), *parts[1:]], "its head is not"),
        (lambda parts: [(b"IHDR", struct.pack(">II", 30, 21) + parts[0][1][8:]), *parts[1:]], "pixels are missing"),
        (lambda parts: [parts[0], (b"PLTE", bytes(4)), *parts[1:]], "its palette"),
    ],
    ids=["two heads", "unknown", "late palette", "torn pixels", "cut pixels", "compression", "rows", "palette"],
)
def test_a_png_of_other_parts_is_refused_though_their_checksums_are_right(change, message):
    with pytest.raises(UserError, match=message):
        headers.require_whole(join(change(chunks(FILES["noise RGB PNG"]))), "place")


@pytest.mark.cluster  # TensorFlow takes its time
@given(kind=st.sampled_from(sorted(FILES)), seed=st.integers(0, 2**32))
def test_what_passes_tensorflow_decodes(kind, seed):
    import tensorflow as tf

    chance = random.Random(seed)
    for data in (damaged(FILES[kind], chance) for _ in range(20)):
        if passes(data):
            tf.io.decode_image(data, 3, expand_animations=False)

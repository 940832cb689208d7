from hypothesis import given
from hypothesis import strategies as st

from components.register.answers import compare
from tests.errors import user_error

ANSWERED = {"instances": [[1], [2]], "output": "p", "answers": [[0.25], [0.5]]}
RIGHT = {"predictions": [{"p": [0.25]}, {"p": [0.5]}]}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("pq"), inner),
    max_leaves=6,
)


def test_recorded_answers_are_right():
    compare("m", lambda rows: RIGHT, ANSWERED)
    compare("m", lambda rows: {"predictions": ANSWERED["answers"]}, ANSWERED)


@given(VALUES)
def test_any_other_answer_is_user_error(value):
    """A server's answer that is not the recorded one, whatever it is, is an error of one line."""
    for response in ({"predictions": value}, {"predictions": [{"p": value}] * 2}, {"q": value}):
        with user_error(r"^m: its server does"):
            compare("m", lambda rows, response=response: response, ANSWERED)

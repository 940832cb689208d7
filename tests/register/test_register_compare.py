import math

import pytest

from components.register.answers import compare
from tests.errors import user_error

ANSWERED = {"instances": [[1], [2]], "output": "p", "answers": [[0.25], [0.5]]}


@pytest.mark.parametrize(
    "response",
    [
        {"predictions": [[0.25]]},
        {"predictions": [[0.25], [math.nan]]},
        {"predictions": [[0.25], [10**400]]},
        {"predictions": [{"q": [0.25]}, {"p": [0.5]}]},
        {"error": "no"},
    ],
)
def test_other_answers_are_user_error(response):
    with user_error(r"^m: its server does"):
        compare("m", lambda rows: response, ANSWERED)


def test_rounding_is_no_other_answer():
    near = {"predictions": [[0.25], [0.003]]}
    compare("m", lambda rows: near, {**ANSWERED, "answers": [[0.25], [0.001]]})

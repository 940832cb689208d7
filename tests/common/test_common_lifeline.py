from common import lifeline
from tests.errors import user_error


def test_owner_pid_from_environment():
    for environ, pid in (({}, None), ({"PIPELINE_OWNER_PID": "42"}, 42)):
        assert lifeline.owner_pid(environ) == pid
    for text in ("me", "-1"):
        with user_error("PIPELINE_OWNER_PID"):
            lifeline.owner_pid({"PIPELINE_OWNER_PID": text})

"""The fake Cloud Storage refuses to Google's own client what the real one refuses."""

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud.storage import Client

SAME, OTHER = "if_generation_not_match", ["if_generation_match", "if_metageneration_match"]


@pytest.fixture
def store(bucket):
    (bucket / "a").write_text("text")
    return Client("demo-project", AnonymousCredentials()).bucket("demo")


@pytest.mark.parametrize("condition", [SAME, *OTHER])
@pytest.mark.parametrize("verb", ["reload", "upload", "delete"])
def test_unmet_precondition_is_refused(bucket, store, condition, verb):
    present = store.get_blob("a").generation
    blob = store.blob("a")
    calls = {
        "reload": blob.reload,
        "upload": lambda **given: blob.upload_from_string(b"new", **given),
        "delete": blob.delete,
    }
    is_read = verb == "reload" and condition == SAME
    with pytest.raises(exceptions.NotModified if is_read else exceptions.PreconditionFailed):
        calls[verb](**{condition: present + (condition != SAME)})
    assert (bucket / "a").read_text() == "text"

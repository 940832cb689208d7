"""The converter's files in a bucket whose store fails: the same bytes, and nothing half-written."""

import os
import re

import pytest

from common.storage.files import delete_files, list_files, open_file, write_bytes
from common.storage.storage import map_in_threads, storage_of

pytestmark = [pytest.mark.cloud, pytest.mark.cloud_ci]


def test_files_come_through_a_store_that_fails_one_request_in_twenty(cloud):
    place = f"gs://{cloud.bucket}/data"
    contents = [os.urandom(1 << 18) for _ in range(70)] + [os.urandom(20 << 20)]
    cloud.fail(
        {"match": rf"/b/{cloud.bucket}/o", "status": 503, "share": 0.04},
        {"match": rf"/b/{cloud.bucket}/o", "status": 429, "share": 0.01},
        # Each in mid-transfer, once: the answer of an upload that is complete, a download, and a joining.
        {"match": rf"POST .*upload.*{cloud.bucket}.*uploadType=multipart", "cut": True, "times": 1},
        {"match": rf"PUT .*upload.*{cloud.bucket}.*parts.70", "reset": True, "times": 1},
        {"match": rf"GET .*{cloud.bucket}.*whole.*alt=media", "cut": True, "times": 1},
        {"match": rf"POST .*{cloud.bucket}.*whole.compose", "cut": True, "times": 1},
    )

    def write(number: int):
        return write_bytes(f"{place}/parts/{number:02}", contents[number], if_version="")

    parts = map_in_threads(write, range(len(contents)))
    made = storage_of(place).join(parts, f"{place}/whole")
    whole = b"".join(contents)
    middle = made.num_bytes // 2
    with open_file(made, 0, middle) as one, open_file(made, middle, made.num_bytes) as other:
        assert one.read(middle) + other.read() == whole
    assert [file.path for file in list_files(place)] == [*(part.path for part in parts), made.path]
    assert (cloud.files / "data" / "whole").read_bytes() == whole
    delete_files(part.path for part in parts)
    assert [file.path for file in list_files(place)] == [made.path]
    log = [line for line in (cloud.work / "requests.log").read_text().splitlines() if f"/b/{cloud.bucket}/o" in line]
    assert any(re.search(" (503|429)$", line) for line in log)

"""The converter's files in a bucket whose store fails: the same bytes, and nothing half-written."""

import os
import re

import pytest

from common.storage.files import delete_files, list_files, open_file, write_bytes
from common.storage.storage import map_in_threads

pytestmark = [pytest.mark.cloud, pytest.mark.cloud_ci]


def test_files_come_through_a_store_that_fails_one_request_in_twenty(cloud):
    place = f"gs://{cloud.bucket}/data"
    contents = [os.urandom(1 << 18) for _ in range(70)] + [os.urandom(20 << 20)]
    cloud.fail(
        {"match": rf"/b/{cloud.bucket}/o", "status": 503, "share": 0.04},
        {"match": rf"/b/{cloud.bucket}/o", "status": 429, "share": 0.01},
        # Each in mid-transfer, once: the answer of an upload that is complete, and a download.
        {"match": rf"POST .*upload.*{cloud.bucket}.*uploadType=multipart", "cut": True, "times": 1},
        {"match": rf"PUT .*upload.*{cloud.bucket}.*parts.70", "reset": True, "times": 1},
        {"match": rf"GET .*{cloud.bucket}.*parts.70.*alt=media", "cut": True, "times": 1},
    )

    def write(number: int):
        return write_bytes(f"{place}/parts/{number:02}", contents[number], if_version="")

    parts = map_in_threads(write, range(len(contents)))
    last = parts[-1]
    middle = last.num_bytes // 2
    with open_file(last, 0, middle) as one, open_file(last, middle, last.num_bytes) as other:
        assert one.read(middle) + other.read() == contents[-1]
    assert [file.path for file in list_files(place)] == [part.path for part in parts]
    assert [
        (cloud.files / "data" / "parts" / f"{i:02}").read_bytes() for i in range(len(parts))
    ] == contents
    delete_files(part.path for part in parts[:-1])
    assert [file.path for file in list_files(place)] == [last.path]
    log = [
        line
        for line in (cloud.work / "requests.log").read_text().splitlines()
        if f"/b/{cloud.bucket}/o" in line
    ]
    assert any(re.search(" (503|429)$", line) for line in log)

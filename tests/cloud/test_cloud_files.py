"""The converter's files in a bucket whose store fails: the same bytes, nothing half-written, and every retry counted."""

import os
import re

import pytest

from common.storage.listing import deleted, listed
from common.storage.reading import opened
from common.storage.store import COUNTS, parallel
from common.storage.writing import created, joined

pytestmark = [pytest.mark.cloud, pytest.mark.cloud_ci]


def test_files_come_through_a_store_that_fails_one_request_in_twenty(cloud):
    place, before = f"gs://{cloud.bucket}/data", COUNTS.told()
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
        with created(f"{place}/parts/{number:02}", new=True) as file:
            file.write(contents[number])
        return file.made

    parts = parallel(write, range(len(contents)))
    made = joined(parts, f"{place}/whole")
    whole = b"".join(contents)
    middle = made.num_bytes // 2
    with opened(made, 0, middle) as one, opened(made, middle, made.num_bytes) as other:
        assert one.read(middle) + other.read() == whole
    assert [file.path for file in listed(place)] == [*(part.path for part in parts), made.path]
    assert (cloud.files / "data" / "whole").read_bytes() == whole
    deleted(part.path for part in parts)
    assert [file.path for file in listed(place)] == [made.path]
    log = [line for line in (cloud.work / "requests.log").read_text().splitlines() if f"/b/{cloud.bucket}/o" in line]
    failed = sum(bool(re.search(" (503|429)$", line)) for line in log)
    after = COUNTS.told()
    assert failed and after["retries"] - before["retries"] == failed + 4, (failed, after)
    assert after["bytes_written"] - before["bytes_written"] == len(whole)

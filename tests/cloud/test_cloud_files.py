"""The converter's files in a bucket whose store fails: the same bytes, and nothing half-written."""

import os
import re
import subprocess
import sys

import pytest

from common.storage.files import delete_files, list_files, open_file, write_bytes
from common.storage.storage import map_in_threads

pytestmark = [pytest.mark.cloud, pytest.mark.cloud_ci]


def test_files_survive_failing_store(cloud):
    place = f"gs://{cloud.bucket}/data"
    contents = [os.urandom(1 << 18) for _ in range(70)] + [os.urandom(20 << 20)]
    host, large = f"/b/{cloud.bucket}/o", f".*{cloud.bucket}.*parts.70"
    cloud.fail(
        {"match": host, "status": 503, "share": 0.04},
        {"match": host, "status": 429, "share": 0.01},
        # Each in mid-transfer, once: the answer of an upload that is complete, and a download.
        {"match": f"POST .*upload.*{host}.*uploadType=multipart", "cut": True, "times": 1},
        {"match": f"PUT {large}", "reset": True, "times": 1},
        {"match": f"GET {large}.*alt=media", "cut": True, "times": 1},
    )

    def write(number):
        return write_bytes(f"{place}/parts/{number:02}", contents[number], if_version="")

    parts = map_in_threads(write, range(len(contents)))
    paths, last = [part.path for part in parts], parts[-1]
    middle = last.num_bytes // 2
    with open_file(last, 0, middle) as one, open_file(last, middle, last.num_bytes) as other:
        assert one.read(middle) + other.read() == contents[-1]
    assert [file.path for file in list_files(place)] == paths
    written = sorted((cloud.files / "data" / "parts").iterdir())
    assert [path.read_bytes() for path in written] == contents
    delete_files(paths[:-1])
    assert [file.path for file in list_files(place)] == paths[-1:]
    assert re.search(rf"{host}.* (503|429)\n", cloud.log())


def test_mount_notes_what_disks_do(cloud):
    """In the bucket of no test, as a note fails the test that it is of."""
    name = f"/gcs/demo/{cloud.bucket}"
    program = f"import fcntl, os; open('{name}', 'w').close(); os.rename('{name}', '{name}-2'); "
    program += f"fcntl.flock(open('{name}-2', 'a'), fcntl.LOCK_EX)"
    subprocess.run([sys.executable, "-c", program], check=True)
    noted = re.findall(rf"(\S+) {name}", (cloud.work / "mount.log").read_text())
    assert noted == ["os.rename", "os.rename", "open", "fcntl.flock"]

"""What a replica of a proving job does: `python -c THIS_FILE gs://BUCKET/BASE/JOB CODE`.

Every attempt notes in BASE/JOB/REPLICA-ATTEMPT.json who it is and what it sees. In its first
attempt the last replica ends with CODE; the others wait for its second. It stands alone, on
machines of Vertex AI and in an image that has the project.
"""

import concurrent.futures
import json
import os
import pathlib
import socket
import sys
import time

from google.api_core.exceptions import TooManyRequests
from google.cloud import storage

from pipelines.doctor import check_modules

_PATIENCE_S = 400.0  # for another replica; a machine comes in two or three minutes


def main(place, code):
    """Looks, notes, waits and ends."""
    name, _, job = place.removeprefix("gs://").partition("/")
    bucket, base = storage.Client().bucket(name), job.rpartition("/")[0]
    about = json.loads(os.environ["CLUSTER_SPEC"])
    task, cluster = about["task"], about["cluster"]
    me, own = f"{task['type']}-{task['index']}", cluster[task["type"]][task["index"]]
    everybody = [address for pool in sorted(cluster) for address in cluster[pool]]

    def attempts(replica):
        return len(list(bucket.list_blobs(prefix=f"{job}/{replica}-")))

    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    attempt, seen = attempts(me), {"me": {"name": own, "boot": boot, "time_s": round(time.time())}}
    with socket.create_server(("", int(own.rpartition(":")[2]))):
        seen["store"] = _store(bucket.blob(f"{base}/shared"))
        if len(everybody) == 1:
            seen["mount"], seen["gpus"] = _mount(bucket, base), _gpus()
            seen["modules"] = [*check_modules()] or "all can be imported"
        elif attempt == 0:
            seen["reached"] = [
                address for address in everybody if _until(lambda a=address: _answers(a))
            ]
        bucket.blob(f"{job}/{me}-{attempt}.json").upload_from_string(json.dumps(seen))
        if own != everybody[-1]:
            _until(lambda: attempts("workerpool1-0") > 1)
        elif attempt == 0:
            if len(everybody) > 1:
                _until(lambda: attempts("workerpool0-0") > 0)  # which has to reach this one
            sys.exit(int(code))


def _until(ready):
    deadline = time.monotonic() + _PATIENCE_S
    while not (done := ready()) and time.monotonic() < deadline:
        time.sleep(1)
    return done


def _answers(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def _store(blob):
    """Milliseconds of 200 reads of one object, eight at a time, and how many were told 429."""

    def read(_):
        began = time.monotonic()
        try:
            blob.download_as_bytes(retry=None)
        except TooManyRequests:
            return -1
        return round(1000 * (time.monotonic() - began))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        times = sorted(pool.map(read, range(200)))
    return {"median": times[100], "worst": times[-1], "told_429": times.count(-1)}


def _mount(bucket, base):
    """Seconds until an object of others is seen at /gcs, and whether renaming replaces."""
    here = pathlib.Path("/gcs", bucket.name, base, "mount")
    (here / "late").exists()  # a mount may remember that it is not there
    bucket.blob(f"{base}/mount/late").upload_from_string("x")
    began = time.monotonic()
    seen = _until((here / "late").exists)
    seconds = round(time.monotonic() - began)
    try:
        (here / "new").write_text("new")
        (here / "new").replace(here / "late")
        renamed = (here / "late").read_text() == "new"
    except OSError as error:
        renamed = str(error)
    return {"seen": seen, "after_s": seconds, "renamed": renamed}


def _gpus():
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU"))


if __name__ == "__main__":
    main(*sys.argv[1:])

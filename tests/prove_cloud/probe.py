"""What a replica of a proving job does: `python -c THIS_FILE gs://BUCKET/BASE JOB CODE`, on machines of Vertex AI.

Every attempt notes in BASE/JOB/REPLICA-ATTEMPT-began.json who it is, and in ...-saw.json what it sees: a replica alone
its machine, one of several the others. In its first attempt the last replica ends with CODE; the others wait for its
second. It stands alone, in an image that has the project.
"""

import concurrent.futures
import importlib
import json
import os
import pathlib
import pkgutil
import socket
import statistics
import sys
import time
from collections.abc import Callable

from google.api_core.exceptions import TooManyRequests
from google.cloud import storage

_PATIENCE_S = 400.0  # for another replica; a machine comes in two or three minutes


def main(place: str, job: str, code: str) -> None:
    """Notes, looks, waits and ends."""
    name, _, base = place.removeprefix("gs://").partition("/")
    bucket = storage.Client().bucket(name)
    about = json.loads(os.environ["CLUSTER_SPEC"])
    task, cluster = about["task"], about["cluster"]
    me, own = f"{task['type']}-{task['index']}", cluster[task["type"]][task["index"]]
    everybody = [address for pool in sorted(cluster) for address in cluster[pool]]
    others = [address for address in everybody if address != own]

    def noted(replica: str, kind: str) -> int:
        found = bucket.list_blobs(prefix=f"{base}/{job}/{replica}-")
        return sum(blob.name.endswith(f"-{kind}.json") for blob in found)

    attempt = noted(me, "began")

    def note(kind: str, **what: object) -> None:
        blob = bucket.blob(f"{base}/{job}/{me}-{attempt}-{kind}.json")
        blob.upload_from_string(json.dumps({"time": time.time(), **what}))

    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    note("began", address=own, boot=boot)
    with socket.create_server(("", int(own.rpartition(":")[2]))):
        seen = {"store": _store(bucket, f"{base}/shared")}
        if others and attempt == 0:
            seen["reached"] = [address for address in others if _until(lambda a=address: _answers(a))]
        elif not others:
            seen |= {"mount": _mount(bucket, f"{base}/mount"), "lacking": _lacking(), "gpus": _gpus()}
        note("saw", **seen)
        if own != everybody[-1]:
            _until(lambda: noted("workerpool1-0", "saw") > 1)
        elif attempt == 0:
            _until(lambda: noted("workerpool0-0", "saw") > 0)  # which has to reach this one
            sys.exit(int(code))


def _until(ready: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while not (done := ready()) and time.monotonic() < deadline:
        time.sleep(1)
    return done


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def _store(bucket: storage.Bucket, name: str) -> dict[str, float]:
    """Milliseconds of 200 reads of one object, eight at a time, and how many were told 429."""

    def read(_: int) -> float:
        began = time.monotonic()
        try:
            bucket.blob(name).download_as_bytes(retry=None)
        except TooManyRequests:
            return -1.0
        return 1000 * (time.monotonic() - began)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        times = list(pool.map(read, range(200)))
    good = sorted(each for each in times if each >= 0) or [0.0]
    return {"median_ms": statistics.median(good), "worst_ms": good[-1], "told_429": times.count(-1.0)}


def _mount(bucket: storage.Bucket, base: str) -> dict[str, str]:
    """What the mount at /gcs does, in a word or with its error."""
    here = pathlib.Path("/gcs", bucket.name, base)

    def write() -> str:
        here.mkdir(parents=True)
        with (here / "open").open("w") as file:
            file.write("x")
            file.flush()
            early = bucket.blob(f"{base}/open").exists()
        return f"in the store at {'flush' if early else 'close' if bucket.blob(f'{base}/open').exists() else 'neither'}"

    def seen() -> str:
        (here / "late").exists()  # a mount may remember that it is not there
        bucket.blob(f"{base}/late").upload_from_string("x")
        began = time.monotonic()
        return f"{time.monotonic() - began:.0f} s later" if _until((here / "late").exists) else "never"

    def rename() -> str:
        (here / "one").write_text("1")
        (here / "one").replace(here / "open")
        return "replaces" if (here / "open").read_text() == "1" else "does not replace"

    def rename_directory() -> str:
        (here / "a").mkdir()
        (here / "a" / "file").write_text("x")
        (here / "a").rename(here / "b")
        return "moves" if (here / "b" / "file").exists() and not (here / "a").exists() else "does not move"

    def told(what: Callable[[], str]) -> str:
        try:
            return what()
        except OSError as error:
            return str(error)

    checks = {"write": write, "object of others": seen, "rename": rename, "rename of a directory": rename_directory}
    return {name: told(check) for name, check in checks.items()}


def _lacking() -> list[str]:
    """Modules of the project that cannot be imported, with the reason."""
    lacking = []
    for package in map(importlib.import_module, ("trainer", "components", "pipelines")):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                try:
                    importlib.import_module(module.name)
                except Exception as error:
                    lacking.append(f"{module.name}: {error}")
    return lacking


def _gpus() -> int:
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU"))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Training through each way of reading: the same bits, the same stop at a damaged file. Real processes."""

import pytest

from common.manifest import HEAD_BYTES, Manifest
from components.convert.convert import convert
from components.convert.options import Options

pytestmark = pytest.mark.cluster


def test_killed_job_resumes_in_another_mode_to_the_same_bits(make):
    flags = ["--deterministic", "--checkpoint-num-steps", 20, "--train-steps", 100, "--batch-size", 50]
    straight, killed = make(), make()
    straight.run("chief", "worker", flags=[*flags, "--reader", "resident"])
    killed.start("chief", "worker", flags=[*flags, "--reader", "mapped"])
    killed.until_step(45)
    killed.kill()
    killed.wait()
    assert "reader: resident (" in killed.run("chief", "worker", flags=flags)
    assert next(e["step"] for e in killed.events() if e["event"] == "resume") in (20, 40, 60, 80)
    assert straight.digest(100) == killed.digest(100)


def test_damaged_record_ends_job_with_its_file(make, tmp_path):
    manifest = convert(Options(output=str(tmp_path / "data"), shards=1))
    path = tmp_path / "data" / manifest.split("train").shards[0].file
    content = bytearray(path.read_bytes())
    content[HEAD_BYTES + 5000] ^= 1
    path.write_bytes(content)
    job = make(data=tmp_path / "data")
    job.start("chief", flags=["--train-steps", 500, "--batch-size", 4, "--reader", "mapped"])
    assert job.wait() == {"chief-0": 2}
    errors = [line for line in job.output().splitlines() if "error" in line.lower() or "Traceback" in line]
    assert len(errors) == 1
    assert errors[0].startswith(f"error: {path} is not the file that the manifest lists")


def test_parameter_servers_workers_map_files_without_python(make, digits, tmp_path):
    job = make()
    flags = ["--train-steps", 40, "--reader", "mapped", "--cache-dir", tmp_path / "cache"]
    job.run("chief", "worker", "ps", flags=flags)
    assert {e["step"] for e in job.events() if e["event"] == "done"} == {40}
    assert len(list((tmp_path / "cache").rglob("train-*.tfrecord"))) == len(Manifest.load(digits).split("train").shards)

import json
import sys
from pathlib import Path

import pytest
import yaml
from google.cloud import aiplatform_v1 as v1

from components.train.__main__ import main
from tests.errors import user_error
from tests.programs import run_python
from tests.root import ROOT

CLUSTERS = ROOT / "clusters"
LOCAL = ["--cluster", str(CLUSTERS / "local.yaml")]
SOURCES = Path(__file__).with_name("sources")


def test_process_dry_run_prints_plan(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--data-dir", "data", "--train-steps", "9", "--job-dir", "jobs/a"]
    assert main(["--cluster", str(CLUSTERS / "local-ps.yaml"), "--dry-run", "--", *flags]) == 0
    replicas = json.loads(capsys.readouterr().out)["replicas"]
    command = [sys.executable, "-m", "trainer.task", *flags, "--strategy", "parameter_server"]
    assert [each["command"] for each in replicas] == [command] * 4
    assert replicas[2]["log"] == "jobs/a/replicas/worker-1.log"
    variables = {"TRAINER_POOL_ROLES": "chief,worker,ps", "PYTHONHASHSEED": "0"}
    assert replicas[2]["env"].items() >= variables.items()


def test_ignored_keys_are_named(capsys, tmp_path):
    words = f"--cluster {CLUSTERS / 'vertex-ps.yaml'} --command true --job-dir {tmp_path} --dry-run"
    assert main(words.split()) == 0
    assert "--backend process ignores machine, " in capsys.readouterr().out


def test_vertex_dry_run_prints_job(capsys):
    words = f"--cluster {SOURCES / 'everything.yaml'} --backend vertex --image i --dry-run".split()
    assert main(words) == 0
    out, err = capsys.readouterr()
    v1.CustomJobSpec.from_json(out, ignore_unknown_fields=False)
    job = json.loads(out)
    data = ["--data-dir", "gs://my-bucket/data", "--train-steps", "1000"]
    flags = [*data, "--job-dir", "gs://my-bucket/census", "--strategy", "parameter_server"]
    assert job["workerPoolSpecs"][0]["containerSpec"]["args"] == flags
    assert job["baseOutputDirectory"] == {"outputUriPrefix": "gs://my-bucket/census"}
    assert "replaced: " in err
    assert main([*words, "--command", "python -m mine --x 'a b'"]) == 0
    container = json.loads(capsys.readouterr().out)["workerPoolSpecs"][2]["containerSpec"]
    assert container["command"] == ["python", "-m", "mine", "--x", "a b"]
    assert container["args"] == data


def test_kubernetes_dry_run_prints_manifest(capsys, tmp_path):
    cluster = tmp_path / "cluster.yaml"
    words = f"--cluster {cluster} --backend kubernetes --image i --namespace n --dry-run".split()
    words += ["--claim", "data:/data", "--", "--data-dir=/data/d", "--job-dir=/data/j"]
    words += ["--train-steps=9"]
    cluster.write_text("{strategy: one_device, chief: {}}")
    assert main(words) == 0
    jobset = yaml.safe_load(capsys.readouterr().out)
    assert (jobset["kind"], jobset["metadata"]["namespace"]) == ("JobSet", "n")
    cluster.write_text("{strategy: one_device, chief: {}, pod_template: {spec: {containers: 5}}}")
    with user_error("pod_template cannot be used"):
        main(words)


VERTEX = "--cluster clusters/vertex-sync.yaml --backend vertex --image i"
FIXED = f"{VERTEX}@sha256:{'0' * 64}"
KUBERNETES = "--backend kubernetes --image i"
DATA_HERE = "-- --data-dir d --train-steps 9 --job-dir a"
DATA_THERE = "-- --data-dir gs://b/d --train-steps 9 --job-dir gs://b/a"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("", "trainer flags, behind the '--': the following arguments are required: --data-dir"),
        (DATA_THERE, "--job-dir is gs://b/a; add --log-dir"),
        (f"--job-dir a {DATA_HERE}", "--code and --job-dir here are for --command"),
        (f"{VERTEX} {DATA_THERE}", "a tag be moved; give REF@sha256:"),
        (f"{FIXED} {DATA_THERE}", "--project is missing"),
        (f"{VERTEX} --dry-run {DATA_HERE}", "--job-dir a: the replicas need a bucket; give gs://"),
        (f"{FIXED} {DATA_THERE} --data-dir /tmp", "--data-dir /tmp: the replicas do not"),
        (
            f"--backend vertex --image i --dry-run {DATA_THERE}",
            "chief: Vertex needs a machine type",
        ),
        (
            f"{VERTEX} --dry-run -- --data-dir gs://b/d --job-dir gs://b/a",
            "give either --train-steps or --train-epochs",
        ),
        (f"--backend kubernetes {DATA_THERE}", "--image is missing; give one that the cluster"),
        (
            f"{KUBERNETES} {DATA_HERE}",
            "d: the replicas do not see this machine's files; give gs://",
        ),
        (f"{KUBERNETES} --claim data:/da {DATA_THERE} --data-dir /data", "/data: the replicas do"),
        (f"{KUBERNETES} --claim data {DATA_THERE}", "--claim: 'data' is not a volume claim and a"),
        ("--command true", "add --job-dir DIR before the '--'"),
        ("--command true --job-dir a --code no/such", "--code no/such: no such directory"),
        ("--cluster BASIC_GPU --strict", "--strict allows no replacement"),
        (
            "--cluster STANDARD_1 --strategy mirrored --command true --job-dir a",
            "STANDARD_1: worker: mirrored has none",
        ),
    ],
)
def test_bad_arguments_are_refused(refused, monkeypatch, arguments, error):
    monkeypatch.chdir(CLUSTERS.parent)
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    assert error in refused(main, *LOCAL, *arguments.split())


@pytest.mark.cluster
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_trainer_import_starts_no_thread():
    """A library's thread that does not block a signal lets it end the replica unsaved."""
    code = "import os, sys, trainer.task; sys.exit(len(os.listdir('/proc/self/task')))"
    run_python("-c", code, code=1)

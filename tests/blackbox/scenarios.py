"""Scenarios of commands in a checkout: records, weights, exit codes, decisions, specs, worker pools, recovery.

Each scenario runs commands in a checkout and returns what they did as data of JSON. It imports nothing of the project, so
it says the same of any structure inside: `observe(SCENARIOS["pools"], checkout, directory)`.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import yaml

IMAGE = "us-docker.pkg.dev/p/t/i@sha256:" + "0" * 64
SCHEMA = {
    "name": "trips",
    "origin": "made up",
    "columns": {
        "miles": {"type": "float", "default": 0.0},
        "seconds": {"type": "int"},
        "company": {"type": "string", "default": ""},
        "tip": {"type": "string"},
    },
    "label": {"column": "tip", "classes": ["no", "yes"]},
    "deep": [{"column": "miles", "numeric": "z_score"}, {"column": "company", "vocabulary": 3, "embedding": 4}],
    "wide": [{"column": "seconds", "buckets": [60, 600]}, {"columns": ["company", "seconds"], "hash_buckets": 20}],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkout:
    """A directory with the project's sources, and a directory for what its commands write."""

    root: pathlib.Path
    work: pathlib.Path

    def start(self, *line: object) -> subprocess.Popen[str]:
        """Starts Python with these arguments in the checkout."""
        environment = {**os.environ, "PYTHONPATH": str(self.root), "TF_CPP_MIN_LOG_LEVEL": "2"}
        return subprocess.Popen(
            [sys.executable, *map(str, line)],
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *line: object, code: int = 0) -> str:
        """Runs Python to its end, which has to be this exit code. Returns what it printed."""
        process = self.start(*line)
        output, _ = process.communicate(timeout=600)
        if process.returncode != code:
            raise AssertionError(f"exit code {process.returncode}, not {code}: {' '.join(map(str, line))}\n{output}")
        return output

    def exit_code(self, *line: object) -> int:
        """Runs Python to its end. Returns its exit code."""
        process = self.start(*line)
        process.communicate(timeout=600)
        return process.returncode

    def convert(self, name: str, *flags: object) -> pathlib.Path:
        """Converts a dataset unless that is done. Returns its directory."""
        dataset = self.work / "datasets" / name
        if not dataset.exists():
            self.run("-m", "components.convert", "--output", dataset, *flags)
        return dataset

    def train(self, job: str, cluster: str, *flags: object, code: int = 0) -> pathlib.Path:
        """Trains on a cluster of this machine. Returns the job directory."""
        self.run(*training(self.work / job, cluster, *flags), code=code)
        return self.work / job


def training(job_dir: pathlib.Path, cluster: str, *flags: object) -> list[object]:
    """Returns Python's arguments for a training job."""
    return ["-m", "components.train", "--cluster", f"clusters/{cluster}.yaml", "--", "--job-dir", job_dir, *flags]


def sha256(directory: pathlib.Path, pattern: str) -> dict[str, str]:
    """Returns the SHA-256 of each file by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(directory.glob(pattern))}


def keys(value: Any) -> Any:
    """Returns the structure of data of JSON: keys, and the types of values."""
    if isinstance(value, dict):
        return {key: keys(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [keys(value[0])] if value else []
    return type(value).__name__


def load(path: pathlib.Path) -> Any:
    """Reads a file of JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


def trips(directory: pathlib.Path, kind: str) -> list[object]:
    """Writes a table of 600 rows and its schema. Returns the flags that name them."""
    directory.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)
    rows = []
    for _ in range(600):
        company = chance.choice(["Blue", "Green", "Łódź", ""])
        miles = round(chance.expovariate(0.3), 1)
        tip = "yes" if chance.random() < (0.9 if company == "Blue" else 0.2) else "no"
        rows.append({"miles": miles, "seconds": int(miles * 200), "company": company, "tip": tip})
    if kind == "csv":
        lines = [",".join(SCHEMA["columns"]), *(",".join(map(str, row.values())) for row in rows)]
    else:
        lines = [json.dumps(row) for row in rows]
    source = directory / f"rows.{kind}"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    schema = directory / "schema.yaml"
    schema.write_text(yaml.safe_dump(SCHEMA, sort_keys=False), encoding="utf-8")
    return ["--dataset", kind, "--source", source, "--schema", schema]


def idx(directory: pathlib.Path) -> list[object]:
    """Writes 120 training and 40 test images in MNIST's format. Returns the flags that name them."""
    directory.mkdir(parents=True, exist_ok=True)
    chance = random.Random(1)
    for part, count in (("train", 120), ("t10k", 40)):
        images = struct.pack(">4I", 2051, count, 28, 28) + chance.randbytes(count * 784)
        labels = struct.pack(">2I", 2049, count) + bytes(i % 10 for i in range(count))
        (directory / f"{part}-images-idx3-ubyte").write_bytes(images)
        (directory / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels, mtime=0))
    return ["--dataset", "mnist", "--source", directory]


def cifar(directory: pathlib.Path) -> list[object]:
    """Writes 6 files of 20 images in CIFAR-10's binary format. Returns the flags that name them."""
    directory.mkdir(parents=True, exist_ok=True)
    chance = random.Random(2)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        content = b"".join(bytes([i % 10]) + chance.randbytes(3072) for i in range(20))
        (directory / f"{name}.bin").write_bytes(content)
    return ["--dataset", "cifar10", "--source", directory]


def records(checkout: Checkout) -> Any:
    """Bytes of the records of each kind of source."""
    sources = {
        "digits": ["--dataset", "digits"],
        "csv": trips(checkout.work / "csv", "csv"),
        "jsonl": trips(checkout.work / "jsonl", "jsonl"),
        "idx": idx(checkout.work / "idx"),
        "cifar": cifar(checkout.work / "cifar"),
    }
    return {
        name: sha256(checkout.convert(name, *flags, "--shards", 2), "*.tfrecord") for name, flags in sources.items()
    }


def mistakes(checkout: Checkout) -> Any:
    """Exit codes of mistakes, and of commands that only look."""
    digits, none = checkout.convert("digits", "--dataset", "digits", "--shards", 2), checkout.work / "none"
    trainer = ["-m", "trainer.task", "--data-dir", digits, "--job-dir", none]
    lines = {
        "convert an unknown dataset": ["-m", "components.convert", "--dataset", "digitz", "--output", none],
        "convert into too many shards": ["-m", "components.convert", "--output", none, "--shards", 10**9],
        "train without a length": trainer,
        "train an unknown model": [*trainer, "--train-steps", 1, "--model", "cnnn"],
        "train without a dataset": ["-m", "trainer.task", "--data-dir", none, "--job-dir", none, "--train-steps", 1],
        "train on an unknown cluster": ["-m", "components.train", "--cluster", "none.yaml", "--", *trainer[2:]],
        "evaluate without a model": [
            *("-m", "components.evaluate", "--model-dir", none),
            *("--data-dir", digits, "--output", none),
        ],
        "run with a bad threshold": ["pipelines/run.py", "--threshold", "banana=1", "--runs-dir", none],
        "resume no run": ["pipelines/runs.py", "resume", none],
        "submit without a project": ["pipelines/submit.py"],
        "compile": ["pipelines/compile.py", "--output-dir", checkout.work / "specs"],
        "list no runs": ["pipelines/runs.py", "list", "--runs-dir", none],
    }
    return {name: checkout.exit_code(*line) for name, line in lines.items()}


def specs(checkout: Checkout) -> Any:
    """Tasks of both compiled pipelines: what each takes, from where, when it runs, and whether it is cached."""
    checkout.run("pipelines/compile.py", "--image", IMAGE, "--output-dir", checkout.work / "specs")
    return {path.stem: dict(tasks(yaml.safe_load(path.read_text()))) for path in checkout.work.glob("specs/*.yaml")}


def tasks(spec: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields each task of a spec by its path of groups."""

    def visit(component: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
        for name, task in component.get("dag", {}).get("tasks", {}).items():
            inputs = task.get("inputs", {})
            yield (
                f"{path}/{name}",
                {
                    "after": sorted(task.get("dependentTasks", [])),
                    "artifacts": sorted(inputs.get("artifacts", {})),
                    "cached": task.get("cachingOptions", {}).get("enableCache", False),
                    "condition": task.get("triggerPolicy"),
                    "parameters": sorted(
                        name for name in inputs.get("parameters", {}) if not name.startswith("pipeline")
                    ),
                },
            )
            yield from visit(spec["components"][task["componentRef"]["name"]], f"{path}/{name}")

    yield from visit(spec["root"], "")


def pools(checkout: Checkout) -> Any:
    """Worker pools of the cluster files for Vertex AI."""
    plans = {}
    for path in sorted(checkout.root.glob("clusters/vertex-*.yaml")):
        line = ["-m", "components.train", "--backend", "vertex", "--cluster", path.relative_to(checkout.root)]
        flags = ["--dry-run", "--project", "p-project-1", "--image", IMAGE, "--"]
        trainer = ["--data-dir", "gs://b/d", "--train-steps", 10, "--job-dir", "gs://b/j"]
        output = checkout.run(*line, *flags, *trainer)
        job, _ = json.JSONDecoder().raw_decode(output[output.index("{") :])
        plans[path.stem] = job["workerPoolSpecs"]
    return plans


def training_job(checkout: Checkout) -> Any:
    """A job that is done, run again, asked for another seed, stopped, and killed and resumed."""
    data = ["--data-dir", checkout.convert("digits", "--dataset", "digits", "--shards", 2), "--deterministic"]
    steps = [*data, "--train-steps", 200, "--checkpoint-num-steps", 50]
    job = checkout.train("job", "local", *steps)
    again = checkout.exit_code(*training(job, "local", *steps))
    refused = checkout.exit_code(*training(job, "local", *steps, "--seed", 1))
    killed = disturbed(checkout, "killed", "local", steps, signal.SIGKILL, "chief")
    stopped = checkout.start(*training(checkout.work / "stopped", "local", *data, "--train-steps", 10**6))
    wait_for_step(checkout.work / "stopped", 20)
    stopped.send_signal(signal.SIGTERM)
    stopped.communicate(timeout=120)
    return {
        "again": again,
        "another seed": refused,
        "stopped": stopped.returncode,
        "killed": weights(checkout.work / "killed") == weights(job) and killed,
        "done": keys(load(job / "DONE.json")),
        "files": sorted(path.name for path in job.iterdir() if not path.name.startswith("journal")),
    }


def failures(checkout: Checkout) -> Any:
    """Attempts of each replica after one of them was killed: all restart, or a worker of a parameter-server job alone."""
    data = ["--data-dir", checkout.convert("digits", "--dataset", "digits", "--shards", 2)]
    steps = [*data, "--train-steps", 2000, "--checkpoint-num-steps", 200]
    lost = {"sync": ("local-sync", "worker"), "ps-worker": ("local-ps", "worker"), "ps-server": ("local-ps", "ps")}
    return {
        name: disturbed(checkout, name, cluster, steps, signal.SIGKILL, role) for name, (cluster, role) in lost.items()
    }


def disturbed(
    checkout: Checkout, name: str, cluster: str, flags: list[object], number: signal.Signals, role: str
) -> Any:
    """Trains, and sends a signal to a replica on the way. Returns the exit code and the attempts by replica."""
    job_dir = checkout.work / name
    launcher = checkout.start(*training(job_dir, cluster, *flags))
    wait_for_step(job_dir, 20)
    os.kill(replica(launcher.pid, role), number)
    output, _ = launcher.communicate(timeout=600)
    if launcher.returncode:
        raise AssertionError(output)
    journals = sorted(path.stem.removeprefix("journal-") for path in job_dir.glob("journal-*.jsonl"))
    return {"code": launcher.returncode, "attempts": journals}


def replica(launcher: int, role: str) -> int:
    """Returns the process of the first replica of a role below a launcher."""
    import psutil

    for process in psutil.Process(launcher).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            config = process.environ().get("TF_CONFIG", "")
            task = json.loads(config or "{}").get("task", {})
            if "trainer.task" in process.cmdline() and task in ({"type": role, "index": 0}, {}):
                return process.pid
    raise AssertionError(f"no replica {role}")


def wait_for_step(job_dir: pathlib.Path, step: int) -> None:
    """Waits until a chief's journal has come to a step; a minute without any line is an error."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for path in job_dir.glob("journal-chief-0-*.jsonl"):
            lines = path.read_text(encoding="utf-8").splitlines()
            with contextlib.suppress(ValueError, IndexError):
                if json.loads(lines[-1])["step"] >= step:
                    return
        time.sleep(0.1)
    raise AssertionError(f"{job_dir}: step {step} is not reached")


def weights(job_dir: pathlib.Path) -> str:
    """Returns a digest of the exported model's weights."""
    import tensorflow as tf  # 3 s

    reader = tf.train.load_checkpoint(str(job_dir / "model" / "variables" / "variables"))
    digest = hashlib.sha256()
    for name in sorted(reader.get_variable_to_shape_map()):
        if name.startswith("variables/"):
            digest.update(reader.get_tensor(name).tobytes())
    return digest.hexdigest()


def trained_weights(checkout: Checkout) -> Any:
    """Weights of three models after 200 steps, on one device and on two workers; they depend on the processor."""
    flags = ["--deterministic", "--train-steps", 200, "--batch-size", 32]
    models = {
        "cnn": ["--dataset", "digits"],
        "resnet": cifar(checkout.work / "cifar"),
        "wide_deep": trips(checkout.work / "csv", "csv"),
    }
    digests = {}
    for model, source in models.items():
        data = checkout.convert(f"{model}-data", *source, "--shards", 2)
        for cluster in ("local", "local-sync"):
            name = f"{model}-{cluster}"
            digests[name] = weights(checkout.train(name, cluster, "--data-dir", data, "--model", model, *flags))
    return digests


def pipeline(checkout: Checkout) -> Any:
    """Two runs of the pipeline: what the second decides, and the structure of what people and programs read."""
    places = ["--runs-dir", checkout.work / "runs", "--registry", checkout.work / "registry"]
    flags = [*places, "--cluster", "clusters/local.yaml", "--fail-on-reject"]
    first = checkout.exit_code("pipelines/run.py", *flags, "--train-steps", 300)
    rejected = checkout.exit_code("pipelines/run.py", *flags, "--train-steps", 300, "--min-accuracy", 1)
    run = min((checkout.work / "runs").glob("*/run.json")).parent
    model = checkout.work / "registry" / "digits"
    evaluation = load(run / "evaluation.json")
    return {
        "codes": [first, rejected],
        "verdict": evaluation["decision"]["verdict"],
        "evaluation": keys(evaluation),
        "version": keys(load(model / "1" / "version.json")),
        "aliases": load(model / "aliases.json"),
        "versions": sorted(path.name for path in model.iterdir() if path.name.isdigit()),
    }


SCENARIOS: dict[str, Callable[[Checkout], Any]] = {
    scenario.__name__: scenario
    for scenario in (records, mistakes, specs, pools, training_job, failures, pipeline, trained_weights)
}

"""Trains small jobs that show what only GPUs can: `make prove-gpu` on any machine that has one, better two; ten minutes.

UNPROVEN: nobody has run it on a GPU; `--allow-cpu` runs the same jobs on processors, which shows
that this program works and nothing of GPUs. Every job is one of `components.train`, as a user
starts it. Writes JSON.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import yaml

from common.cli import Parser, run_cli
from common.errors import UserError
from common.version import code_version

ROOT = pathlib.Path(__file__).parents[2]
_ONE, _MIRRORED = ({"strategy": name, "chief": {}} for name in ("one_device", "mirrored"))
_PAIR = {"strategy": "multi_worker_mirrored", "chief": {}, "worker": {}}
_SERVERS = {"strategy": "parameter_server", "chief": {}, "worker": {}, "ps": {}}
_SERVERS_2 = {**_SERVERS, "worker": {"replicas": 2}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A training that shows something."""

    shows: str
    cluster: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _ONE)
    flags: tuple[str, ...] = ()
    gpus: int = (
        1  # At least; with fewer it is not run, unless processors are allowed and can do the same.
    )
    on_cpu: bool = True


_NCCL = ("--all-reduce", "nccl")
JOBS = {
    "one": Job(shows="one device"),
    "bfloat16": Job(shows="bfloat16", flags=("--precision", "bfloat16")),
    "xla": Job(shows="compiled by XLA", flags=("--jit-compile",)),
    "mapped": Job(shows="records read from the disk", flags=("--reader", "mapped")),
    "servers": Job(shows="parameter server and a worker", cluster=_SERVERS),
    "mirrored": Job(
        shows="mirrored, resident copies", cluster=_MIRRORED, flags=("--reader", "resident"), gpus=2
    ),
    "mirrored-nccl": Job(
        shows="mirrored by NCCL", cluster=_MIRRORED, flags=_NCCL, gpus=2, on_cpu=False
    ),
    "pair-ring": Job(
        shows="two workers by ring", cluster=_PAIR, flags=("--all-reduce", "ring"), gpus=2
    ),
    "pair-nccl": Job(shows="two workers by NCCL", cluster=_PAIR, flags=_NCCL, gpus=2, on_cpu=False),
    "servers-2": Job(shows="parameter server and two workers", cluster=_SERVERS_2, gpus=2),
    "mirrored-bfloat16": Job(
        shows="mirrored in bfloat16", cluster=_MIRRORED, flags=("--precision", "bfloat16"), gpus=2
    ),
}
RESUME = (
    "resume"  # is no job: half as many steps, and then the rest, have the weights of all at once
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prover:
    """Runs the jobs below a directory."""

    place: pathlib.Path
    data_dir: str
    model: tuple[str, ...]
    steps: int
    gpu: str  # Its name; empty without one.

    def train(self, name: str, job: Job, steps: int, *more: str) -> pathlib.Path:
        """Trains up to step `steps`, or on to it. Returns the job's directory.

        Raises:
          RuntimeError: If it fails, with its last lines.
        """
        directory, cluster = self.place / name, self.place / f"{name}.yaml"
        cluster.write_text(yaml.safe_dump(dict(job.cluster)))
        flags = [
            "--data-dir",
            self.data_dir,
            "--job-dir",
            str(directory),
            "--train-steps",
            str(steps),
            *self.model,
        ]
        flags += [*job.flags, *more]
        words = [sys.executable, "-m", "components.train", "--cluster", str(cluster), "--", *flags]
        done = subprocess.run(
            words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            raise RuntimeError("\n".join(done.stdout.splitlines()[-6:]))
        return directory

    def prove(self, name: str, job: Job) -> dict[str, Any]:
        """What came of a job: what it computed on by its own account, and how fast."""
        directory = self.train(name, job, self.steps)
        done = json.loads((directory / "DONE.json").read_text())
        lines = [
            line
            for path in sorted(directory.glob("journal-*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        used = sorted({e["devices"] for e in map(json.loads, lines) if e["event"] == "machine"})
        if self.gpu and not any(self.gpu in devices for devices in used):
            raise RuntimeError(f"no replica computed on a GPU: {'; '.join(used)}")
        if done["step"] < self.steps or not done["accuracy"] > 0.5:
            raise RuntimeError(f"step {done['step']} of {self.steps}, accuracy {done['accuracy']}")
        return {
            "examples_per_s": done["examples_per_s"],
            "accuracy": done["accuracy"],
            "devices": used,
        }

    def resume(self) -> dict[str, Any]:
        """Whether a job that goes on has, to the last bit, the weights of one that never stopped."""
        job = JOBS["one"]
        straight = self.train("straight", job, self.steps, "--deterministic")
        self.train("halves", job, self.steps // 2, "--deterministic")
        halves = self.train("halves", job, self.steps, "--deterministic")
        if differing := [
            name for name, value in _weights(straight).items() if _weights(halves)[name] != value
        ]:
            raise RuntimeError(f"{len(differing)} variables differ, {differing[0]} among them")
        return {}


def _weights(job_dir: pathlib.Path) -> dict[str, bytes]:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(job_dir / "model" / "variables" / "variables"))
    return {
        n: reader.get_tensor(n).tobytes()
        for n in reader.get_variable_to_shape_map()
        if n.startswith("variables/")
    }


def machine() -> dict[str, Any]:
    """The GPUs by TensorFlow's account, the driver, and what runs here. In a process that ends: who looks keeps memory."""
    look = (
        "import json, tensorflow as tf; gpus = tf.config.list_physical_devices('GPU'); info = "
        "tf.sysconfig.get_build_info();"
        "print(json.dumps({'gpus': [tf.config.experimental.get_device_details(gpu) for gpu in "
        "gpus], 'tensorflow':"
        "tf.__version__, 'cuda': info.get('cuda_version'), 'cudnn': info.get('cudnn_version')}))"
    )
    told = subprocess.run(
        [sys.executable, "-c", look], check=True, capture_output=True, text=True
    ).stdout
    about = {**json.loads(told.splitlines()[-1]), "code": code_version(), "driver": None}
    if about["gpus"]:
        ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        about["driver"] = subprocess.run(
            ask, check=True, capture_output=True, text=True
        ).stdout.split()[0]
    return about


def _args() -> argparse.Namespace:
    p = Parser(prog="make prove-gpu", description="Shows on GPUs what only they can.")
    p.add_argument(
        "--only",
        nargs="+",
        choices=[*JOBS, RESUME],
        metavar="NAME",
        help=f"of {', '.join([*JOBS, RESUME])}",
    )
    p.add_argument("--data-dir", default="", help="converted images (None: the embedded digits)")
    p.add_argument("--steps", type=int, default=400, help="of each job")
    p.add_argument("--output", default="build/prove-gpu.json", help="the JSON file")
    p.add_argument(
        "--allow-cpu",
        action="store_true",
        help="run without GPUs, to try it; nothing counts as proven",
    )
    return p.parse_args()


def main() -> int:
    """Runs the command line. Returns 1 if something failed."""
    args, about = _args(), machine()
    gpus = len(about["gpus"])
    if not gpus and not args.allow_cpu:
        raise UserError(
            "TensorFlow sees no GPU here: use an image or environment with the extra gpu, or "
            "--allow-cpu to try"
        )
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as place:
        data_dir = args.data_dir or f"{place}/digits"
        if not args.data_dir:
            convert = [sys.executable, "-m", "components.convert", "--output", data_dir]
            subprocess.run(convert, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        model = ("--model", "resnet", "--num-layers", "20") if gpus else ("--model", "cnn")
        name = about["gpus"][0].get("device_name", "GPU") if gpus else ""
        prover = Prover(
            place=pathlib.Path(place), data_dir=data_dir, model=model, steps=args.steps, gpu=name
        )
        for name in args.only or [*JOBS, RESUME]:
            job = JOBS.get(name)
            if job and (gpus < job.gpus if gpus else not job.on_cpu):
                found[name] = {"status": "not shown", "why": f"needs {job.gpus} GPUs"}
            else:
                try:
                    told = prover.prove(name, job) if job else prover.resume()
                    found[name] = {"status": "proven" if gpus else "ran on a processor", **told}
                except RuntimeError as error:
                    found[name] = {"status": "FAILED", "why": str(error)}
            what = job.shows if job else "a resumed job has the weights of one that never stopped"
            print(
                f"{found[name]['status']:20} {name:18} {what}  {found[name].get('why', '')}",
                flush=True,
            )
    output = pathlib.Path(args.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        json.dumps({"machine": about, "steps": args.steps, "found": found}, indent=1) + "\n"
    )
    print(output)
    return int(any(each["status"] == "FAILED" for each in found.values()))


if __name__ == "__main__":
    run_cli(main)

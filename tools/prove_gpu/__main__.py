"""Trains small jobs that show what only GPUs can: `make prove-gpu` where there is one, better two.

It takes ten minutes. UNPROVEN: nobody has run it on a GPU; `--allow-cpu` runs the same jobs on
processors, which shows that this program works and nothing of GPUs. Every job is one of
`components.train`, as a user starts it. Writes JSON.
"""

import dataclasses
import json
import pathlib
import shlex
import tempfile

import yaml

from common.cli import Parser, run_cli
from common.errors import UserError
from common.version import code_version
from tests.programs import run, run_python


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A training that shows something."""

    shows: str
    cluster: dict
    flags: str = ""
    # At least; with fewer it is not run, unless processors are allowed and can do the same.
    gpus: int = 1
    on_cpu: bool = True
    # Half as many steps, and then the rest, have to give the weights of all at once.
    is_resumed: bool = False


_FILE = pathlib.Path(__file__).with_name("jobs.yaml")
JOBS = {name: Job(**fields) for name, fields in yaml.safe_load(_FILE.read_text()).items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prover:
    """Runs the jobs below a directory."""

    place: pathlib.Path
    data_dir: str
    steps: int
    gpu: str  # Its name; empty without one.

    def train(self, name, job, steps):
        """Trains up to step `steps`, or on to it. Returns the job's directory.

        Raises:
          RuntimeError: If it fails, with its last lines.
        """
        directory, cluster = self.place / name, self.place / f"{name}.yaml"
        cluster.write_text(yaml.safe_dump(job.cluster))
        model = "--model resnet --num-layers 20" if self.gpu else "--model cnn"
        paths = ["--data-dir", self.data_dir, "--job-dir", directory]
        flags = shlex.split(f"{model} --train-steps {steps} {job.flags}")
        try:
            run_python("-m", "components.train", "--cluster", cluster, "--", *paths, *flags)
        except AssertionError as error:
            raise RuntimeError("\n".join(str(error).splitlines()[-6:])) from None
        return directory

    def prove(self, name, job):
        """Returns the result of a job: the hardware that it names, and its speed."""
        directory = self.train(name, job, self.steps)
        done = json.loads((directory / "DONE.json").read_text())
        paths = directory.glob("journal-*.jsonl")
        events = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        used = sorted({event["devices"] for event in events if event["event"] == "machine"})
        if self.gpu and not any(self.gpu in devices for devices in used):
            raise RuntimeError(f"no replica computed on a GPU: {'; '.join(used)}")
        if done["step"] < self.steps or not done["accuracy"] > 0.5:
            raise RuntimeError(f"step {done['step']} of {self.steps}, accuracy {done['accuracy']}")
        if job.is_resumed:
            for steps in (self.steps // 2, self.steps):
                halves = self.train(f"{name}-halves", job, steps)
            straight, resumed = weights(directory), weights(halves)
            if differing := [key for key in straight if resumed[key] != straight[key]]:
                raise RuntimeError(f"{len(differing)} variables differ, {differing[0]} among them")
        return {**{key: done[key] for key in ("examples_per_s", "accuracy")}, "devices": used}


def weights(job_dir):
    """Variables of the model that a job has exported."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(job_dir / "model" / "variables" / "variables"))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("variables/")]
    return {name: reader.get_tensor(name).tobytes() for name in names}


_LOOK = """
import json, tensorflow as tf
gpus, about = tf.config.list_physical_devices("GPU"), tf.sysconfig.get_build_info()
details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
versions = {name: about.get(f"{name}_version") for name in ("cuda", "cudnn")}
print(json.dumps({"gpus": details, "tensorflow": tf.__version__, **versions}))
"""


def machine():
    """The GPUs by TensorFlow's account, the driver, and what runs here.

    In a process that ends: who looks keeps memory.
    """

    about = json.loads(run_python("-c", _LOOK, stderr=None).splitlines()[-1])
    about |= {"code": code_version(), "driver": None}
    if about["gpus"]:
        query = run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        about["driver"] = query.split()[0]
    return about


def _args():
    p = Parser(prog="make prove-gpu", description="Shows on GPUs what only they can.")
    p.add_argument("--only", nargs="+", choices=JOBS, metavar="NAME", help=", ".join(JOBS))
    p.add_argument("--data-dir", default="", help="converted images (None: the embedded digits)")
    p.add_argument("--steps", type=int, default=400, help="of each job")
    p.add_argument("--output", default="build/prove-gpu.json", help="the JSON file")
    p.add_argument("--allow-cpu", action="store_true", help="run without GPUs; proves nothing")
    return p.parse_args()


def main():
    """Runs the command line. Returns 1 if something failed."""
    args, about = _args(), machine()
    gpus = len(about["gpus"])
    if not gpus and not args.allow_cpu:
        raise UserError(
            "TensorFlow sees no GPU here: use an image or environment with the extra gpu, or "
            "--allow-cpu to try"
        )
    results = {}
    with tempfile.TemporaryDirectory() as place:
        data_dir = args.data_dir or f"{place}/digits"
        if not args.data_dir:
            run_python("-m", "components.convert", "--output", data_dir)
        gpu = about["gpus"][0].get("device_name", "GPU") if gpus else ""
        prover = Prover(place=pathlib.Path(place), data_dir=data_dir, steps=args.steps, gpu=gpu)
        for name in args.only or JOBS:
            job = JOBS[name]
            if gpus < job.gpus if gpus else not job.on_cpu:
                result = {"status": "not shown", "why": f"needs {job.gpus} GPUs"}
            else:
                try:
                    status = "proven" if gpus else "ran on a processor"
                    result = {"status": status, **prover.prove(name, job)}
                except RuntimeError as error:
                    result = {"status": "FAILED", "why": str(error)}
            results[name] = result
            print(
                f"{result['status']:20} {name:18} {job.shows}  {result.get('why', '')}", flush=True
            )
    output = pathlib.Path(args.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    report = {"machine": about, "steps": args.steps, "found": results}
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(output)
    return int(any(each["status"] == "FAILED" for each in results.values()))


if __name__ == "__main__":
    run_cli(main)

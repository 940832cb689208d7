"""Runs the compiled pipeline on the programs of Kubeflow Pipelines, trained by JobSets.

    make prove-kubeflow PROGRAMS=DIR
    make prove-kubeflow PROGRAMS=DIR BUCKET=1

Three runs on the digits dataset, on a ReadWriteMany claim: the model of the first one is promoted,
that of the second one is registered only, and the training of the third one fails. It exits with 0
if each of them has ended so. Logs of all steps, and everything else, is below build/prove-kubeflow.
With BUCKET, all files are in a bucket of the tests' cloud, and trainings are processes of the step.

DIR has programs of Kubeflow Pipelines 2.17, `driver`, `launcher-v2` and `compile`, and of Argo
Workflows 4.0, `workflow-controller` and `argoexec`; other versions were not tried. `compile
JOB.json [PLATFORM.json]` prints what the server's Go function `argocompiler.Compile` makes of a
PipelineJob and the PlatformSpec of a compiled spec. It is the one that has no release.
"""

import json
import os
import pathlib
import shutil
import sys
import time

from common.cli import Parser, run_cli
from common.errors import UserError
from components.register.register import open_registry
from tests.cloud.conftest import IMAGE
from tests.programs import run_python
from tests.root import ROOT
from tools.prove_kubeflow.server import NAMESPACE, PROGRAMS, Server

_HOME = ROOT / "build/prove-kubeflow"
_LIMIT_S = 900
_CLAIM, _NAME = "training-data", "digits"
_IN_BUCKET = "LOOPBACK_CLOUD" in os.environ
if _IN_BUCKET:
    _FLAGS = ["--image", IMAGE]
    _PLACE = ["--bucket", "gs://demo", "--project", "demo-project"]
    _PLACE += ["--set", "train_args=--backend process --log-dir /tmp/logs"]
    _ROOT, _REGISTRY = "gs://demo", "vertex://demo-project/us-central1"
else:
    _FLAGS = ["--claim", f"{_CLAIM}:/shared", "--image", "training"]
    _PLACE, _ROOT, _REGISTRY = [], "/shared", ""
_FAILING = ["--optimizer", "sgd", "--learning-rate", "1e9"]  # The loss is soon infinite.


def values_of(trainer_flags):
    """Returns the arguments of the pipeline, as `submit.py` makes them."""
    line = ["pipelines/submit.py", "--kfp-host", "http://none", "--dry-run"]
    flags = [*_FLAGS, *_PLACE, "--train-steps", "200"]
    values = json.loads(run_python(*line, *flags, stderr=None))
    del values["run_id"]  # The compiled spec is for many runs, which the server names.
    trainer_args = [*values["trainer_args"], *trainer_flags]
    return {**values, "job_dir": f"{_ROOT}/runs", "trainer_args": trainer_args}


def prove(server, spec, registry):
    """Does the runs, and prints how each of them ended. Returns the mistakes."""
    registry = open_registry(registry)
    mistakes = []
    # Trainer's flags; phases of the run and its training; number of versions; champion.
    for name, flags, phase, trained, num_versions, jobset in (
        ("promoted", [], "Succeeded", "Succeeded", 1, "Completed"),
        ("registered", [], "Succeeded", "Succeeded", 2, "Completed"),
        ("failed", _FAILING, "Failed", "Failed", 2, "Failed"),
    ):
        before = server.jobsets()
        start_s = time.monotonic()
        end, steps = server.run(name, spec, values_of(flags), _LIMIT_S)
        [state] = [value for key, value in server.jobsets().items() if key not in before] or [
            "none"
        ]
        jobset = "none" if _IN_BUCKET else jobset
        versions = len(registry.versions(_NAME))
        expected = {
            "run": (end, phase),
            "train": (steps.get("train"), trained),
            "cleanup": (steps.get("cleanup"), "Succeeded"),
            "JobSet": (state, jobset),
            "versions": (versions, num_versions),
            "champion": (registry.aliases(_NAME).get("champion"), "1"),
        }
        wrong = [
            f"{name}: {key} is {value}, not {other}"
            for key, (value, other) in expected.items()
            if value != other
        ]
        mistakes += wrong
        shown = ", ".join(f"{key} {value}" for key, (value, _) in expected.items())
        print(f"{name}: {time.monotonic() - start_s:.0f} s, {shown}", flush=True)
    return mistakes


def main():
    """Runs the command line. Returns 1 if a run has not ended as it should."""
    about = "Runs the compiled pipeline on the programs of Kubeflow Pipelines, trained by JobSets."
    p = Parser(prog="make prove-kubeflow", description=about)
    p.add_argument("programs", type=pathlib.Path, metavar="PROGRAMS", help=", ".join(PROGRAMS))
    programs = p.parse_args().programs.resolve()
    if missing := [each for each in PROGRAMS if not os.access(programs / each, os.X_OK)]:
        raise UserError(
            f"PROGRAMS={programs}: {', '.join(missing)} missing; put it there, "
            "tools/prove_kubeflow/__main__.py says of which projects"
        )
    if ROOT.is_relative_to("/tmp"):
        raise UserError(f"{ROOT}: pods have a /tmp of their own; clone the project elsewhere")
    home = _HOME / "run"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    run_python("pipelines/compile.py", *_FLAGS, "--output-dir", home)
    control_plane = pathlib.Path(os.environ["CONTROL_PLANE"])
    server = Server(programs, control_plane, ROOT / ".venv-kubeflow/bin/python", home)
    registry = _REGISTRY or str(server.shared / _CLAIM / "registry")
    mistakes = prove(server, home / "training-kubeflow.yaml", registry)
    show = ["-m", "components.register", "history", "--name", _NAME, "--registry", registry]
    print(run_python(*show), end="")
    print(f"logs of all steps: {home / 'logs'}; of replicas: {home}/{NAMESPACE}_*.log")
    for mistake in mistakes:
        print(f"error: {mistake}", file=sys.stderr)
    return int(bool(mistakes))


if __name__ == "__main__":
    run_cli(main)

"""Tests of every flag with every back end: it is accepted, or refused as of no use."""

import dataclasses
import itertools

import pytest

from components.train.__main__ import BACKENDS, parse
from tests.errors import user_error

FLAGS = sorted(
    {field.name for backend in BACKENDS.values() for field in dataclasses.fields(backend.Options)}
)
PLACE = "projects/p/locations/us-central1"
VALUES = {
    "code": "",  # An empty one is set, too.
    "max_machine_hours": "5",
    "grace_period_s": "60",
    "claim": "data:/data",
    "project": "my-project",
    "region": "us-central1",
    "training_service_account": "trains@p.iam.gserviceaccount.com",
    "network": "projects/1/global/networks/n",
    "encryption_key": f"{PLACE}/keyRings/r/cryptoKeys/k",
    "labels": "team=blue",
    "env": "TEXT=a = b",
    "tensorboard": f"{PLACE}/tensorboards/1",
}
CONTROL = ["--status=job", "--stop=job", "--logs=job"]


@pytest.mark.parametrize("control", ["", *CONTROL])
@pytest.mark.parametrize(("name", "backend"), itertools.product(FLAGS, BACKENDS))
def test_flag_of_other_backend_is_refused(control, name, backend):
    flag = f"--{name.replace('_', '-')}"
    argv = ["--backend", backend, *control.split(), flag, VALUES.get(name, "x")]
    options = BACKENDS[backend].Options.__dataclass_fields__
    if name in (BACKENDS[backend].control_flags if control else options):
        assert parse(argv).backend == backend
        return
    where = "--status, --stop and --logs" if control else f"--backend {backend}"
    with user_error(f"^{flag} has no use with {where}; leave it out"):
        parse(argv)


@pytest.mark.parametrize("control", CONTROL)
@pytest.mark.parametrize(
    "flag", ["--strict", "--dry-run", "--cluster=x", "--max-restarts=0", "--command=x", "-- --x"]
)
def test_control_refuses_flags_of_run(control, flag):
    with user_error("has no use with --status, --stop and --logs"):
        parse([control, *flag.split()])

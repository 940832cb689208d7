"""Runs a command where Google Cloud is this machine.

    python -m tests.cloud [--work DIR] -- COMMAND...
    python -m tests.cloud -- python pipelines/submit.py --wait --project demo-project ...
    python -m tests.cloud -- bash          # to look around

There is one project, demo-project, and one bucket, demo; a directory beside it is another. The
cloud's log is in DIR/cloud.log, buckets in DIR/buckets. What the command finds is told in
docs/CLOUD.md.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import psutil

from tests.certificates import make_certificate
from tests.programs import start_python
from tests.root import ROOT

_GOOGLES = "www storage oauth2 compute us-central1-aiplatform iam iamcredentials "
_GOOGLES += "cloudresourcemanager logging"
_HOSTS = (*(f"{name}.googleapis.com" for name in _GOOGLES.split()), "us-docker.pkg.dev")


def main():
    """Runs the command line. Returns the command's exit code; 0 when it was skipped."""
    p = argparse.ArgumentParser(prog="python -m tests.cloud", description=__doc__.splitlines()[0])
    p.add_argument("--work", type=pathlib.Path, help="for buckets and logs (None: temporary)")
    p.add_argument("--entered", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("command", nargs="+")
    args = p.parse_args()
    if args.entered:
        return _inside(args.work, args.command)
    with tempfile.TemporaryDirectory(prefix="cloud-") as temporary:
        work = (args.work or pathlib.Path(temporary)).absolute()
        if (work / "cloud.log").exists():  # of an earlier one; what it knew of them has gone
            for name in ("buckets", "logs", "uploading"):
                shutil.rmtree(work / name, ignore_errors=True)
        for name in ("buckets/demo", "root"):
            (work / name).mkdir(parents=True, exist_ok=True)
        names = f"localhost metadata.google.internal metadata {' '.join(_HOSTS)}"
        (work / "hosts").write_text(f"127.0.0.1 {names}\n")
        enter = ["sh", ROOT / "tests/namespaces.sh", "sh", ROOT / "tests/enter_root.sh"]
        enter += [work / "root", "--", work / "hosts", "/etc/hosts", work / "buckets", "/gcs", "--"]
        again = [sys.executable, "-m", "tests.cloud", "--entered", "--work", work, "--"]
        with subprocess.Popen([*enter, *again, *args.command]) as child:
            # unshare passes no signal on. SIGINT comes from a terminal, which tells the command
            # itself.
            first = psutil.Process(child.pid)
            signal.signal(signal.SIGTERM, lambda n, _: [p.send_signal(n) for p in first.children()])
            signal.signal(signal.SIGINT, lambda *_: None)
            return child.wait()


def _inside(work, command):
    """Runs as the first process of the namespaces."""
    _prepare(work)
    with (work / "cloud.log").open("wb") as log:
        cloud = start_python("-u", "-m", "tests.cloud.server", work, stderr=log)
        if cloud.stdout.readline() != "ready\n":
            sys.exit(f"error: the cloud did not start\n{(work / 'cloud.log').read_text()}")
    running = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda n, _: running.send_signal(n))
    signal.signal(signal.SIGINT, lambda *_: None)
    # orphans too become children of the first process; one that is not waited for would look alive
    while True:
        pid, status = os.wait()
        if pid == running.pid:
            return os.waitstatus_to_exitcode(status) % 256


def _prepare(work):
    """Certificate, and what Google's clients have to know."""
    certificate = work / "certificate.pem"
    make_certificate(certificate, work / "key.pem", [f"DNS:{name}" for name in _HOSTS])
    proxies = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", *proxies):
        os.environ.pop(name, None)
    # Every client has a way of its own to be told of an authority: curl in TensorFlow, requests,
    # gRPC.
    for name in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        os.environ[name] = str(certificate)
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):
        os.environ[name] = "127.0.0.1"
    os.environ |= {"LOOPBACK_CLOUD": str(work), "CLOUDSDK_CONFIG": str(work / "no-gcloud")}
    mount = str(pathlib.Path(__file__).parent / "mount")  # has a module for each Python
    os.environ["PYTHONPATH"] = ":".join(filter(None, [mount, os.environ.get("PYTHONPATH")]))
    (work / "mount.log").write_text("")


if __name__ == "__main__":
    sys.exit(main())

"""Runs a command where Google Cloud is this machine.

    python -m tests.cloud [--work DIR] -- COMMAND...
    python -m tests.cloud -- python pipelines/submit.py --wait --project demo-project ...
    python -m tests.cloud -- bash          # to look around

There is one project, demo-project, and one bucket, demo; a directory beside it is another. The
cloud's log is in DIR/cloud.log, buckets in DIR/buckets. What the command finds is told in
docs/CLOUD.md.
"""

import argparse
import fcntl
import os
import pathlib
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

import psutil

_GOOGLES = "www storage oauth2 compute us-central1-aiplatform iam iamcredentials "
_GOOGLES += "cloudresourcemanager logging"
_HOSTS = (*(f"{name}.googleapis.com" for name in _GOOGLES.split()), "us-docker.pkg.dev")
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_NAMESPACES = "unshare --mount-proc --net --pid --fork --kill-child --propagation private "


def main():
    """Runs the command line. Returns the command's exit code; 0 when it was skipped."""
    p = argparse.ArgumentParser(prog="python -m tests.cloud", description=__doc__.splitlines()[0])
    p.add_argument("--work", type=pathlib.Path, help="for buckets and logs (None: temporary)")
    p.add_argument("--entered", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("command", nargs="+")
    args = p.parse_args()
    if args.entered:
        return _inside(args.work, args.command)
    enter = shlex.split(_NAMESPACES + ("--user --map-root-user" if os.getuid() else ""))
    tried = subprocess.run([*enter, "true"], capture_output=True, text=True)
    if tried.returncode:
        print(f"cloud skipped: no namespaces can be made here ({tried.stderr.strip()})")
        return 0
    with tempfile.TemporaryDirectory(prefix="cloud-") as temporary:
        work = (args.work or pathlib.Path(temporary)).absolute()
        if (work / "cloud.log").exists():  # of an earlier one; what it knew of them has gone
            for name in ("buckets", "logs", "uploading"):
                shutil.rmtree(work / name, ignore_errors=True)
        (work / "buckets" / "demo").mkdir(parents=True, exist_ok=True)
        again = [sys.executable, "-m", "tests.cloud", "--entered", "--work", str(work), "--"]
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
        cloud = subprocess.Popen(
            [sys.executable, "-u", "-m", "tests.cloud.server", str(work)],
            stdout=subprocess.PIPE,
            stderr=log,
        )
        if cloud.stdout.readline() != b"ready\n":
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
    """Loopback device, names, certificate, file tree, and what Google's clients have to know."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    (work / "hosts").write_text(
        f"127.0.0.1 localhost metadata.google.internal metadata {' '.join(_HOSTS)}\n"
    )
    certificate, key = work / "certificate.pem", work / "key.pem"
    alternatives = ",".join(f"DNS:{name}" for name in _HOSTS)
    line = shlex.split("openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=loopback")
    line += ["-keyout", key, "-out", certificate, "-addext", f"subjectAltName={alternatives}"]
    subprocess.run(line, check=True, stderr=subprocess.DEVNULL)
    _change_root(work)
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


def _change_root(work):
    """Goes to a root with all of this machine and `/gcs`; nothing is made outside."""
    here, root = os.getcwd(), work / "root"
    root.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "tmpfs", root)
    shown = {entry.name: entry for entry in pathlib.Path("/").iterdir()} | {"gcs": work / "buckets"}
    for name, entry in shown.items():
        if entry.is_symlink():
            (root / name).symlink_to(os.readlink(entry))
        elif entry.is_dir():
            (root / name).mkdir()
            _mount("--rbind", entry, root / name)
    _mount("--bind", work / "hosts", root / "etc" / "hosts")
    os.chroot(root)
    os.chdir(here)


def _mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)


if __name__ == "__main__":
    sys.exit(main())

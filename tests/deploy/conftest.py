"""A machine of Compute Engine: its metadata server, a docker that makes processes of containers, and how it is lost."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from google.api_core import exceptions

from tests.cloud.conftest import Cloud, cloud  # noqa: F401 (a fixture)
from tests.cloud.front import Answer, Front, Request
from tests.deploy.gcloud import READING, Project

ROOT = pathlib.Path(__file__).parents[2]
_LIMIT_S = 600.0  # of a whole training; a quiet machine takes half a minute
# A container is a process that begins with the image's entry point, in this checkout and with what
# is installed here.
_DOCKER = f"""#!/bin/bash
here=${{0%/*}}/..
case $1 in
login) cat >/dev/null ;;
run)
    while [ "$1" != components.train ]; do shift; done
    (
        export GCE_METADATA_HOST=127.0.0.1 # the cloud's, which knows all that Google's clients ask for
        bash -c 'cd {ROOT} && echo $$ >"$0/pid" && exec ${{CONTAINER:-sh docker/entrypoint.sh}} "$@"' "$here" "$@" \\
            >"$here/output" 2>&1
        echo $? >"$here/code"
    ) </dev/null &
    until [ -s "$here/pid" ]; do sleep 0.1; done
    ;;
inspect) cat "$here/pid" ;;
logs) [ "$2" = --follow ] && tail -n +1 --pid="$(cat "$here/pid")" -f "$here/output" || cat "$here/output" ;;
wait)
    until [ -s "$here/code" ]; do sleep 0.1; done
    cat "$here/code"
    ;;
esac
"""
# The first process of a machine. SIGTERM is the power button: the shutdown script runs, then all
# that is left ends.
_INIT = """trap 'bash -c "$SHUTDOWN"; exit' TERM
bash "$STARTUP" &
while :; do sleep 0.1; done
"""


class Machine:
    """The machine of the group that deploy/vm/create makes, and where it is called from."""

    def __init__(self, directory: pathlib.Path, bucket: str) -> None:
        self.directory, self.console = directory, directory / "console"
        self.metadata: dict[str, str] = {}
        self._taken, self._front = threading.Event(), Front(0, self._answer)
        self._process: subprocess.Popen | None = None
        (directory / "bin").mkdir(parents=True)
        things = {"artifacts repositories": ["training"], "storage buckets": [f"gs://{bucket}"]}
        Project.begin(directory, "demo-project", {**things, "iam service-accounts": []})
        self.install("docker", _DOCKER)
        self.install("sleep", "#!/bin/sh\nexec /bin/sleep 0.1\n")
        (directory / ".curlrc").write_text("http1.1\n")  # the cloud takes HTTP/2 for gRPC
        path = f"{directory}/bin:{directory}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        ours = {
            "CURL_HOME": str(directory),
            "FAKE_GCLOUD": str(directory),
            "RUNTIME_DIRECTORY": f"{directory}/run",
        }
        self._env = {**os.environ, "PATH": path, **ours}

    def install(self, name: str, text: str) -> None:
        """Puts a command before those that are here."""
        (self.directory / "bin" / name).write_text(text)
        (self.directory / "bin" / name).chmod(0o755)

    def run(self, script: str, *words: object, typed: str = "") -> subprocess.CompletedProcess[str]:
        """Runs a script of deploy/vm; after `create` the machine has the metadata of its template."""
        command = [f"deploy/vm/{script}", *map(str, words)]
        done = subprocess.run(
            command, cwd=ROOT, env=self._env, capture_output=True, text=True, input=typed
        )
        for call in self.gcloud("compute instance-templates create"):
            [metadata], [file] = call["flags"]["--metadata"], call["flags"]["--metadata-from-file"]
            self.metadata = dict(
                pair.split("=", 1) for pair in metadata.removeprefix("^||^").split("||")
            )
            self.metadata["startup-script"] = (
                ROOT / file.removeprefix("startup-script=")
            ).read_text()
            group = (
                f"projects/123456789/zones/us-central1-a/instanceGroupManagers/{call['names'][0]}"
            )
            self.metadata["created-by"] = group
        return done

    def gcloud(self, command: str = "") -> list[dict[str, Any]]:
        """The calls of a command of gcloud, or all but those for reading."""
        log = self.directory / "calls.jsonl"
        calls = map(json.loads, log.read_text().splitlines() if log.exists() else [])
        return [
            call
            for call in calls
            if f"{call['group']} {call['verb']}" == command
            or not (command or call["verb"] in READING)
        ]

    def boot(self, container: list[str], **env: str) -> None:
        """Starts the machine as a `container` (the fixture), with nothing of an earlier one on its disk."""
        self._taken.clear()
        shutil.rmtree(self.directory / "run", ignore_errors=True)
        for name in ("pid", "code", "output"):
            (self.directory / name).unlink(missing_ok=True)
        (startup := self.directory / "startup").write_text(self.metadata["startup-script"])
        env |= {"STARTUP": str(startup), "SHUTDOWN": self.metadata["shutdown-script"]}
        env["GCE_METADATA_HOST"] = f"127.0.0.1:{self._front.server_port}"
        command = [*container, "--mount-proc", "bash", "-c", _INIT]
        with self.console.open("w") as console:
            self._process = subprocess.Popen(
                command, env=self._env | env, stdout=console, stderr=subprocess.STDOUT
            )

    def says(self, text: str) -> str:
        """Waits until this is on the console; returns all that is."""
        deadline = time.monotonic() + _LIMIT_S
        while text not in (printed := self.console.read_text()):
            assert time.monotonic() < deadline, printed
            time.sleep(0.1)
        return printed

    def notice(self) -> None:
        """Has the metadata server tell that the machine is being taken away."""
        self._taken.set()

    def press_power(self) -> None:
        """Does what Compute Engine does next, and waits until the machine has shut itself down."""
        psutil.Process(self._process.pid).children()[0].send_signal(signal.SIGTERM)
        self._process.wait()

    def cut_power(self) -> None:
        """Ends all that runs on the machine, with no notice."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Ends the machine and its metadata server."""
        self.cut_power()
        self._front.shutdown()
        shutil.rmtree(
            f"/tmp/{self.metadata['created-by'].split('/')[-1]}", ignore_errors=True
        )  # the launcher's logs

    def _answer(self, request: Request) -> Answer:
        assert request.headers["Metadata-Flavor"] == "Google"
        path = re.sub("^/computeMetadata/v1/instance/(attributes/)?", "", request.path)
        if path == "preempted":
            if "wait_for_change" in request.query:
                self._taken.wait(float(request.query["timeout_sec"]))
            return Answer(200, b"TRUE" if self._taken.is_set() else b"FALSE")
        if path.endswith("/token"):
            return Answer(
                200, {"access_token": "of-no-worth", "expires_in": 3600, "token_type": "Bearer"}
            )
        if path not in self.metadata:
            raise exceptions.NotFound(path)
        return Answer(200, self.metadata[path].encode())


@pytest.fixture
def machine(tmp_path: pathlib.Path, cloud: Cloud) -> Iterator[Machine]:  # noqa: F811
    """A machine that is off."""
    made = Machine(tmp_path / "machine", cloud.bucket)
    yield made
    made.close()


@pytest.fixture
def caller(tmp_path: pathlib.Path) -> Machine:
    """Where deploy/vm is called from, with a curl that writes what it would send into the file `sent`."""
    made = Machine(tmp_path / "machine", "demo")
    made.install("curl", '#!/bin/sh\nprintf "%s\\n" "$@" >"${0%/bin/curl}/sent"\n')
    return made

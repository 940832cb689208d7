"""A machine of Compute Engine: its metadata server, its containers, and how it is lost."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import sys
import threading

import psutil
import pytest
from google.api_core import exceptions

from tests.cloud.conftest import Cloud, cloud  # noqa: F401 (a fixture)
from tests.cloud.front import Answer, Front
from tests.deploy.gcloud import Project
from tests.programs import install, run, start, wait_until
from tests.root import ROOT

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
        # the cloud's, which knows all that Google's clients ask for
        export GCE_METADATA_HOST=127.0.0.1
        cd {ROOT}
        bash -c 'echo $$ >"$0/pid" && exec ${{CONTAINER:-sh docker/entrypoint.sh}} "$@"' \\
            "$here" "$@" >"$here/output" 2>&1
        echo $? >"$here/code"
    ) </dev/null &
    until [ -s "$here/pid" ]; do sleep 0.1; done
    ;;
inspect) cat "$here/pid" ;;
logs)
    follow="-f --pid=$(cat "$here/pid")"
    [ "$2" = --follow ] || follow=
    tail -n +1 $follow "$here/output"
    ;;
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

    def __init__(self, directory, bucket):
        self.directory, self.console = directory, directory / "console"
        self.metadata = {}
        self._taken, self._front = threading.Event(), Front(0, self._answer)
        self._process = None
        things = {"artifacts repositories": ["training"], "storage buckets": [f"gs://{bucket}"]}
        things["iam service-accounts"] = []
        self.project = Project.begin(directory, "demo-project", things)
        self.install("docker", _DOCKER)
        self.install("sleep", "#!/bin/sh\nexec /bin/sleep 0.1\n")
        (directory / ".curlrc").write_text("http1.1\n")  # the cloud takes HTTP/2 for gRPC
        path = f"{directory}/bin:{directory}:{pathlib.Path(sys.executable).parent}"
        self._env = {
            "PATH": f"{path}:{os.environ['PATH']}",
            "RUNTIME_DIRECTORY": f"{directory}/run",
            **dict.fromkeys(("CURL_HOME", "FAKE_GCLOUD"), str(directory)),
        }

    def install(self, name, text):
        """Puts a command before those that are here."""
        install(self.directory / "bin" / name, text)

    def run(self, line, typed="", code=0):
        """Runs a script of deploy/vm with words that a shell understands; returns its output."""
        return run(*shlex.split(f"deploy/vm/{line}"), code=code, typed=typed, env=self._env)

    def boot(self, container, **env):
        """Starts the machine of the template as a `container`, with nothing on its disk."""
        for call in self.project.calls():
            if call["group"] == "compute instance-templates":
                [metadata] = call["flags"]["--metadata"]
                pairs = metadata.removeprefix("^||^").split("||")
                self.metadata = dict(pair.split("=", 1) for pair in pairs)
                [file] = call["flags"]["--metadata-from-file"]
                name, _, path = file.partition("=")
                self.metadata[name] = (ROOT / path).read_text()
                place = "projects/123456789/zones/us-central1-a/instanceGroupManagers"
                self.metadata["created-by"] = f"{place}/{call['names'][0]}"
        self._taken.clear()
        shutil.rmtree(self.directory / "run", ignore_errors=True)
        for name in ("pid", "code", "output"):
            (self.directory / name).unlink(missing_ok=True)
        (startup := self.directory / "startup").write_text(self.metadata["startup-script"])
        env |= {"STARTUP": str(startup), "SHUTDOWN": self.metadata["shutdown-script"]}
        env["GCE_METADATA_HOST"] = f"127.0.0.1:{self._front.server_port}"
        command = [*container, "--mount-proc", "bash", "-c", _INIT]
        with self.console.open("w") as console:
            self._process = start(*command, env=self._env | env, stdout=console)

    def says(self, text):
        """Waits until this is on the console; returns all that is."""
        wait_until(lambda: text in self.console.read_text(), _LIMIT_S, 0.1)
        return self.console.read_text()

    def notice(self):
        """Makes the metadata server announce that the machine is being taken away."""
        self._taken.set()

    def press_power(self):
        """Does what Compute Engine does next, and waits until the machine has shut itself down."""
        psutil.Process(self._process.pid).children()[0].send_signal(signal.SIGTERM)
        self._process.wait()

    def cut_power(self):
        """Ends all that runs on the machine, with no notice."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def close(self):
        """Ends the machine and its metadata server."""
        self.cut_power()
        self._front.shutdown()
        name = pathlib.Path(self.metadata.get("created-by", "none")).name
        shutil.rmtree(f"/tmp/{name}", ignore_errors=True)  # the launcher's logs

    def _answer(self, request):
        assert request.headers["Metadata-Flavor"] == "Google"
        path = re.sub("^/computeMetadata/v1/instance/(attributes/)?", "", request.path)
        if path == "preempted":
            if "wait_for_change" in request.query:
                self._taken.wait(float(request.query["timeout_sec"]))
            return Answer(200, str(self._taken.is_set()).upper().encode())
        if path.endswith("/token"):
            return Answer(200, {"access_token": "of-no-worth", "expires_in": 3600})
        if path not in self.metadata:
            raise exceptions.NotFound(path)
        return Answer(200, self.metadata[path].encode())


@pytest.fixture
def machine(tmp_path, cloud):  # noqa: F811
    """A machine that is off."""
    made = Machine(tmp_path / "machine", cloud.bucket)
    yield made
    made.close()


@pytest.fixture
def caller(tmp_path):
    """Makes a place to call deploy/vm from, whose curl writes its requests into `sent`."""
    made = Machine(tmp_path / "machine", "demo")
    made.install("curl", '#!/bin/sh\nprintf "%s\\n" "$@" >"${0%/bin/curl}/sent"\n')
    return made

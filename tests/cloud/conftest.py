"""Fixture of the tests that run inside the loopback cloud (`make test-cloud`), else skipped."""

import collections
import dataclasses
import functools
import json
import os
import pathlib
import re
import shlex
import tempfile
import zlib
from typing import Any

import pytest
import requests

from tests.cloud.iam import host
from tests.deploy.calls import NEEDS, short
from tests.deploy.gcloud import Project
from tests.programs import ended, start_python, wait_until
from trainer.job import journal

IMAGE = f"us-docker.pkg.dev/demo-project/training/image@sha256:{'0' * 64}"
YOU, BUILD, PIPELINE, TRAIN = (
    f"training-{name}@demo-project.iam.gserviceaccount.com"
    for name in ("you", "build", "pipeline", "train")
)
ONE = "{strategy: one_device, chief: {machine: n1-standard-8}}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submitted:
    """A run that submit.py has waited for."""

    printed: str
    run_id: str
    job_dir: pathlib.Path
    jobs: list[dict[str, Any]]  # what the cloud tells of each of its custom jobs, in order

    def step(self):
        """Step with which the training was done."""
        return json.loads((self.job_dir / "DONE.json").read_text())["step"]

    def attempts(self, key="ending"):
        """Returns the attempts in the job directory's record."""
        return [line[key] for line in json.loads((self.job_dir / "attempts.json").read_text())]


@functools.cache
def _granted():
    """Returns the bindings that deploy/setup makes for a bucket `the-bucket`."""
    with tempfile.TemporaryDirectory() as home:
        project = Project.begin(pathlib.Path(home), "demo-project", {})
        project.setup("--bucket the-bucket")
        return project.bindings()


class Cloud:
    """The cloud as a test sees it. What it runs acts as a user, `YOU`.

    Attributes:
      work: Directory with `buckets`, `logs` and `requests.log`.
      bucket: Name of the test's own bucket, and of its model.
      files: Directory of the bucket's files.
    """

    def __init__(self, bucket):
        self.work, self.bucket = pathlib.Path(os.environ["LOOPBACK_CLOUD"]), bucket
        self.files = self.work / "buckets" / bucket
        self.files.mkdir()
        self.allow()

    def allow(self, *without, bindings=None):
        """Makes the cloud enforce what deploy/setup grants, but for one resource, role, account.

        Other `bindings` may stand in the place of those of deploy/setup; a user's are added. After
        docs/PROJECT.md a user needs what the account of builds has.
        """
        granted = json.dumps(_granted()).replace("the-bucket", self.bucket)
        yours = [each for each in json.loads(granted.replace(BUILD, YOU)) if each[2].endswith(YOU)]
        bound = [*(bindings or json.loads(granted)), *yours]
        kept = [
            each
            for each in bound
            if (each[0], each[1][len("roles/") :], each[2].partition(":")[2]) != without
        ]
        assert len(kept) == len(bound) - bool(without)
        self.ask("PUT", f"iam/{self.bucket}", json=kept)

    def needs(self):
        """Returns by account which permissions every run needs, and where, of those so far."""
        needs = collections.defaultdict(set)
        for email, permission, resource, folder in self.ask("GET", f"iam/{self.bucket}").json():
            needs[short(email)].add(f"{permission} {folder or short(resource)}".rstrip())
        unseen = NEEDS["unseen"]
        return {name: sorted(lines - {*unseen.get(name, ())}) for name, lines in needs.items()}

    def run(self, line, *words):
        """Starts a program of Python by a line of a shell, and more words."""
        return start_python(*shlex.split(line), *words)

    def printed(self, process, code=0):
        """Output of a program, or of a line that starts one; it has to end with `code`."""
        if isinstance(process, str):
            process = self.run(process)
        printed = ended(process, code)
        assert "Traceback" not in printed, printed
        return printed

    def flags(self, cluster):
        """The flags of a submission to the bucket, given the text of a cluster file."""
        file = self.work / f"{self.bucket}.yaml"
        file.write_text(cluster)
        bucket = f"--bucket gs://{self.bucket} --name {self.bucket}"
        accounts = f"--service-account {PIPELINE} --set training_service_account={TRAIN}"
        return f"--project demo-project {accounts} {bucket} --image {IMAGE} --cluster {file}"

    def start(self, cluster, flags):
        """Starts submit.py with --wait."""
        return self.run(f"pipelines/submit.py --wait --yes {self.flags(cluster)} {flags}")

    def finish(self, process, code=0):
        """Waits for submit.py, which has to end with `code`."""
        printed = self.printed(process, code)
        run_id = re.search(r"submitted (\S+):", printed)[1]
        return Submitted(
            printed=printed,
            run_id=run_id,
            job_dir=self.files / "runs" / run_id / "job",
            jobs=[job for job in self.jobs() if job["display_name"] == run_id],
        )

    def submit(self, cluster, flags):
        """Runs submit.py with --wait."""
        return self.finish(self.start(cluster, flags))

    def train(self, cluster, flags):
        """Starts submit.py; returns it, and its custom job and job directory with a checkpoint."""
        before = len(self.jobs())
        process = self.start(cluster, flags)

        def ours():
            jobs = self.jobs()[before:]
            return [job for job in jobs if job["output"].startswith(f"gs://{self.bucket}/")]

        job_dir = self.files / "runs" / self.until(ours)[0]["display_name"] / "job"
        self.until(lambda: self.steps(job_dir) > 0)
        return process, ours()[0], job_dir  # with its replicas

    def jobs(self):
        """Number, display name, output, state, running replicas and events of each custom job."""
        return self.ask("GET", "jobs").json()

    def now(self, job):
        """The same of one job."""
        [now] = [each for each in self.jobs() if each["number"] == job["number"]]
        return now

    def starts(self, job, replica):
        """Returns how often a replica of the job has started."""
        return self.now(job)["events"].count(f"{replica} started")

    def take(self, job, replica, how):
        """Takes the replica's machine away: `lose` or `preempt`."""
        self.ask("POST", f"jobs/{job['number']}/{how}", params={"replica": replica})

    def fail(self, *rules):
        """Sets the faults (`tests.cloud.faults.Fault`) of this test, in place of those before."""
        self.ask("PUT", f"faults/{self.bucket}", json=list(rules))

    def ask(self, method, path, **rest):
        """Asks something of the cloud itself (`tests.cloud.server`)."""
        answer = requests.request(method, f"http://127.0.0.1/loopback/{path}", **rest)
        answer.raise_for_status()
        return answer

    def steps(self, job_dir):
        """The newest step that has a checkpoint; -1 before the first."""
        paths = job_dir.glob("checkpoints/ckpt-*.index")
        return max((int(path.stem.split("-")[1]) for path in paths), default=-1)

    def events(self, job_dir, kind=""):
        """Returns the chief's events of all attempts, of one kind or all, newest first."""
        told = journal.events(job_dir, "chief-0")
        return [event for event in told if kind in ("", event["event"])]

    def log(self):
        """A line for each request so far."""
        return (self.work / "requests.log").read_text()

    until = staticmethod(functools.partial(wait_until, limit_s=180.0, poll_s=0.1))


@pytest.fixture
def cloud(request, monkeypatch):
    """The cloud, with an empty bucket that has the test's name."""
    if "LOOPBACK_CLOUD" not in os.environ:
        pytest.skip("runs inside the loopback cloud only: make test-cloud")
    from google.cloud import aiplatform
    from google.oauth2.credentials import Credentials

    words = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    made = Cloud(f"{words[:40].strip('-')}-{zlib.crc32(words.encode()):08x}")
    you = host(YOU, made.bucket)
    monkeypatch.setenv("GCE_METADATA_HOST", you)
    aiplatform.init(project="demo-project", location="us-central1", credentials=Credentials(you))
    yield made
    made.fail()
    noted = (made.work / "mount.log").read_text().splitlines()
    assert not [line for line in noted if f"/{made.bucket}/" in line]


@pytest.fixture
def versions(cloud):
    """Returns a function that lists all versions of the test's model, oldest first."""
    from google.cloud import aiplatform

    def read():
        models = aiplatform.Model.list(filter=f'display_name="{cloud.bucket}"')
        assert len(models) <= 1, models
        numbers = [
            version.version_id
            for model in models
            for version in model.versioning_registry.list_versions()
        ]
        name = models[0].resource_name if models else ""
        return [aiplatform.Model(name, version=number) for number in sorted(numbers, key=int)]

    return read

"""The container engine and its jobs, as these tests ask for them."""

import json
import shlex
import subprocess

from tests.programs import run, start_python


def docker(line, **options):
    """Output of a command of the engine's client, which may not fail."""
    return run("docker", *shlex.split(line), stderr=None, **options).strip()


def train(line, *words, output=subprocess.PIPE):
    """Starts components.train on two workers, if the line names no other cluster."""
    command = ["-m", "components.train", "--cluster", "clusters/local-sync.yaml"]
    return start_python(*command, *words, *shlex.split(line), stdout=output)


def remove(*containers, network):
    """Removes what a fixture creates by fixed names, also before: killed tests leave it."""
    subprocess.run(["docker", "rm", "--force", *containers], capture_output=True)
    subprocess.run(["docker", "network", "rm", network], capture_output=True)


def step_of(job):
    """Returns the step of worker/0, 0 before the first."""
    status = job / "replicas" / "worker-0.status.json"
    return json.loads(status.read_text())["step"] if status.exists() else 0


def events_of(file, kind):
    """Events of a kind, or of several joined by `|`, in a journal."""
    events = [json.loads(line) for line in file.read_text().splitlines()]
    return [event for event in events if event["event"] in kind.split("|")]


def check_recovery(job, *, saved, last, kills=1):
    """Returns the journal of the chief's last start.

    Each kill of worker/0 was a preemption, and all went on from step `saved` or later to `last`.
    """
    blames = events_of(job / "launcher.jsonl", "blame")
    assert [(event["replica"], event["kind"]) for event in blames] == [
        ("worker/0", "preemption")
    ] * kills
    journal = job / f"journal-chief-0-{kills}.jsonl"
    assert json.loads((job / "DONE.json").read_text())["step"] == last
    began = events_of(journal, "start|resume")[0]
    assert began["event"] == "resume" and began["step"] >= saved
    return journal

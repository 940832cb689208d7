"""The container engine and its jobs, as these tests ask for them."""

import json
import subprocess
from pathlib import Path
from typing import Any


def docker(*words: str, **options: str) -> str:
    """Output of a command of the engine's client; `AssertionError` with what it says when it fails."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stderr}"
    return done.stdout.strip()


def remove(*containers: str, network: str) -> None:
    """Removes what a fixture creates by fixed names: after its tests, and before them what killed tests left."""
    subprocess.run(["docker", "rm", "--force", *containers], capture_output=True)
    subprocess.run(["docker", "network", "rm", network], capture_output=True)


def step_of(job: Path, replica: str = "worker-0") -> int:
    """What a replica tells, 0 before it does; workers of parameter servers know of no steps."""
    status = job / "replicas" / f"{replica}.status.json"
    return json.loads(status.read_text())["step"] if status.exists() else 0


def check_recovery(job: Path, *, saved: int, last: int, kills: int = 1) -> list[dict[str, Any]]:
    """Returns the journal of the chief's last start.

    Each kill of worker/0 was a preemption, and all went on from step `saved` or later to `last`.
    """
    events = [json.loads(line) for line in (job / "launcher.jsonl").read_text().splitlines()]
    blames = [(event["replica"], event["kind"]) for event in events if event["event"] == "blame"]
    assert blames == [("worker/0", "preemption")] * kills
    journal = [
        json.loads(line)
        for line in (job / f"journal-chief-0-{kills}.jsonl").read_text().splitlines()
    ]
    began = next(event for event in journal if event["event"] in ("start", "resume"))
    assert began["event"] == "resume" and began["step"] >= saved
    assert json.loads((job / "DONE.json").read_text())["step"] == last
    return journal

"""Small files that a job, a run or another program has written, whatever is in them by now."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import documents
from common.errors import UserError
from common.manifest import Manifest
from components.train.__main__ import main
from components.train.backends.attempts import JobStore
from components.train.supervision import lock
from components.train.supervision.health import Patience, Vitals
from pipelines.runs import read
from tests.errors import user_error
from trainer import options
from trainer.job import done, identity, journal

GOAL = options.parse(
    ["--data-dir=d", "--job-dir=j", "--train-steps=9", "--eval-every-steps=1", "--patience=3"],
    environ={},
)
REPLICA = {"replica": "chief/0", "log": "l", "status": "s"}
START = {"event": "start", "time": 1.0, "pid": 7, "replicas": [REPLICA]}
NAMES = ("step", "epochs", "loss", "accuracy", "seconds", "examples_per_s")
DONE = dict.fromkeys(NAMES, 7) | {"validation": {}}
JOB = {"identity": {"dataset": "digits", "seed": 0}, "settings": {}, "arguments": {"shards": 1}}
RUN = dict.fromkeys(("id", "image", "dataset", "cluster", "runner"), "a")
RUN["arguments"] = {"job_dir": "j"}
SPLITS = {"train": {"shards": []}}
MANIFEST = {"format_version": 1, "name": "d", "features": [], "wide": [], "splits": SPLITS}
ATTEMPT = {"display_name": "a", "ending": "failed"}


def read_status(directory):
    vitals = Vitals(str(directory / "status.json"))
    vitals.read(0.0)
    vitals.frozen(1.0, Patience(), reports=True)
    vitals.summary(vitals.phase)


def read_lock(directory):
    with lock.locks.locked(directory / lock.FILE):
        str(lock.holder(str(directory)).name)


def read_done(directory):
    if finished := done.load(str(directory)):
        GOAL.is_met_by(finished)


def read_job(directory):
    identity.check(str(directory), JOB["identity"])
    identity.begin(str(directory), JOB, write=False)
    identity.trained_on(str(directory))


# A record and its reader by the name of its file.
READERS: dict[str, tuple[dict[str, Any], Callable[[Path], object]]] = {
    "status.json": ({"phase": "training", "step": 7, "examples_per_s": 9.5}, read_status),
    "launcher.jsonl": (START, lambda directory: main(["--status", str(directory)])),
    "launcher.lock": ({"host": "h, pid:[1]", "pid": 7, "started": 1.0}, read_lock),
    "DONE.json": (DONE, read_done),
    "job.json": (JOB, read_job),
    "journal-chief-0-0.jsonl": (
        {"event": "done", "step": 7},
        lambda path: journal.last(str(path), "chief-0", "done"),
    ),
    "run.json": (RUN, read),
    "manifest.json": (MANIFEST, Manifest.load),
    "attempts.json": (ATTEMPT, lambda directory: JobStore(str(directory)).load()),
}
DEEP = "[" * 200_000
NUMBERS = ["9" * 401, "9" * 5000, "1e999", "NaN", "-1"]
HOSTILE = [DEEP, *NUMBERS, '"\\ud800"', "null", "[]", "[1]", "{}", '"x"', "true"]
HOSTILE.append('[{"display_name": 1}]')


@st.composite
def contents(draw, document):
    """Bytes that are no record, or one that is damaged in some way."""
    text = json.dumps(document)
    match draw(st.sampled_from(["bytes", "cut", "top", "value"])):
        case "bytes":
            return draw(st.binary(max_size=200))
        case "cut":
            return text[: draw(st.integers(0, len(text)))].encode()
        case "top":
            return draw(st.sampled_from(HOSTILE)).encode()
    name = draw(st.sampled_from(sorted(document)))
    marked = json.dumps({**document, name: "REPLACED"})
    return marked.replace('"REPLACED"', draw(st.sampled_from(HOSTILE))).encode()


def bear(reader, directory):
    """Reads a record, or sees a `UserError` of one line."""
    try:
        reader(directory)
    except UserError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_any_bytes_of_record_are_borne(tmp_path, name, data):
    """A record file with any bytes is read, or is a `UserError` of one line; nothing else."""
    document, reader = READERS[name]
    (tmp_path / name).write_bytes(data.draw(contents(document)))
    bear(reader, tmp_path)


def test_endless_yaml_is_refused():
    with user_error("recursion depth"):
        documents.parse_yaml(b"[" * 20_000)
    with user_error("line 2, column 4: aliases are not read; repeat the values"):
        documents.parse_yaml(b"a: &a [1]\nb: *a")

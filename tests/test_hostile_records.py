"""Small files that a job, a run or another program has written, whatever is in them by now."""

import json
import os
import pathlib
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from common import documents
from common.errors import UserError
from common.manifest import Manifest
from components.convert.__main__ import main as convert
from components.convert.records import checksums
from components.train.__main__ import main
from components.train.backends.attempts import JobStore
from components.train.supervision import health, lock
from components.train.supervision.health import Patience, Vitals
from pipelines.runs import read
from trainer import options
from trainer.job import done, identity, journal

GOAL = options.parse(
    ["--data-dir=d", "--job-dir=j", "--train-steps=9", "--eval-every-steps=1", "--patience=3"],
    environ={},
)
LAUNCHER = {"host": "h, pid:[1]", "pid": 7, "started": 1.0}
START = {
    "event": "start",
    "time": 1.0,
    "pid": 7,
    "replicas": [{"replica": "chief/0", "log": "l", "status": "s"}],
}
DONE = {
    "step": 7,
    "epochs": 1.0,
    "loss": 0.5,
    "accuracy": 0.9,
    "validation": {},
    "seconds": 1.0,
    "examples_per_s": 9.0,
}
JOB = {
    "identity": {"dataset": "digits", "seed": 0},
    "settings": {"width": 1},
    "arguments": {"shards": 1},
}
RUN = {
    "id": "a",
    "runner": "subprocess",
    "image": "i",
    "dataset": "d",
    "cluster": "c",
    "arguments": {"job_dir": "j"},
}
MANIFEST = {
    "format_version": 1,
    "name": "d",
    "features": [],
    "splits": {"train": {"shards": []}},
    "wide": [],
}


def read_status(directory: pathlib.Path) -> None:
    vitals = Vitals(str(directory / "status.json"))
    vitals.read(0.0)
    vitals.frozen(1.0, Patience(), reports=True)
    vitals.summary(vitals.phase)


def read_lock(directory: pathlib.Path) -> None:
    with lock.locks.locked(directory / lock.FILE):
        str(lock.holder(str(directory)).name)


def read_done(directory: pathlib.Path) -> None:
    if finished := done.load(str(directory)):
        GOAL.is_met_by(finished)


def read_job(directory: pathlib.Path) -> None:
    identity.check(str(directory), JOB["identity"])
    identity.begin(str(directory), JOB, write=False)
    identity.trained_on(str(directory))


READERS: dict[str, tuple[dict[str, Any], Callable[[pathlib.Path], object]]] = {
    "status.json": ({"phase": "training", "step": 7, "examples_per_s": 9.5}, read_status),
    "launcher.jsonl": (START, lambda directory: main(["--status", str(directory)])),
    "launcher.lock": (LAUNCHER, read_lock),
    "DONE.json": (DONE, read_done),
    "job.json": (JOB, read_job),
    "journal-chief-0-0.jsonl": (
        {"event": "done", "step": 7},
        lambda path: journal.last(str(path), "chief-0", "done"),
    ),
    "run.json": (RUN, read),
    "manifest.json": (MANIFEST, Manifest.load),
}
HOSTILE = [
    "[" * 200_000,
    "9" * 401,
    "9" * 5000,
    "1e999",
    "NaN",
    '"\\ud800"',
    "null",
    "[]",
    "{}",
    "-1",
    '"x"',
    "true",
]


@st.composite
def contents(draw: st.DrawFn, document: dict[str, Any]) -> bytes:
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


@pytest.mark.parametrize("name", READERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes_of_record_are_borne(tmp_path: pathlib.Path, name: str, data: st.DataObject):
    """A record file with any bytes is read, or is a `UserError` of one line; nothing else is raised."""
    document, reader = READERS[name]
    (tmp_path / name).write_bytes(data.draw(contents(document)))
    try:
        reader(tmp_path)
    except UserError as error:
        assert "\n" not in str(error)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=contents({"display_name": "a", "ending": "failed"}))
@example(content=b"[1]")
@example(content=b'[{"display_name": 1}]')
def test_any_bytes_of_attempts_are_borne(bucket: pathlib.Path, content: bytes):
    """Anything but a list of jobs is a `UserError` of one line."""
    (bucket / "attempts.json").write_bytes(content)
    store = JobStore("gs://demo")
    try:
        store.load()
        assert store.attempts == []
    except UserError as error:
        assert "\n" not in str(error)


def test_large_files_are_refused_unread(tmp_path: pathlib.Path):
    for name, (_, reader) in READERS.items():
        if not name.endswith(".jsonl"):
            with open(tmp_path / name, "wb") as file:
                file.truncate(1 << 40)  # More than there is memory.
            try:
                reader(tmp_path)
            except UserError as error:
                assert "\n" not in str(error)
    with (
        open(tmp_path / "status.json", "rb") as file,
        pytest.raises(ValueError, match="more than 65,536 bytes"),
    ):
        documents.read(file, health.MOST_BYTES)


def test_status_in_pipe_is_passed_over(tmp_path: pathlib.Path):
    os.mkfifo(tmp_path / "status.json")
    read_status(tmp_path)


def test_json_without_end_is_refused():
    document = "[" * 90 + json.dumps('"[{\\' * 10_000) + "]" * 90
    assert documents.parse_json(document) == json.loads(document)
    for endless in ("[" * 200_000, '{"a":' * 200_000):
        with pytest.raises(ValueError, match="nested too deep"):
            documents.parse_json(endless)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 20_000 + "]" * 20_000, "recursion depth"),
        ("- " * 20_000 + "x", "recursion depth"),
        ("a: &a [1]\nb: *a", "line 2, column 4: aliases are not read; repeat the values"),
        ("a: 1\na: 2", "line 1, column 1: 'a' stands there twice"),
    ],
)
def test_yaml_without_end_is_refused(text: str, why: str):
    with pytest.raises(UserError, match=why):
        documents.parse_yaml(text.encode())


def test_length_of_record_is_bounded(tmp_path: pathlib.Path, refused: Callable[..., str]):
    length = struct.pack("<Q", 1 << 60)
    (tmp_path / "train-0.tfrecord").write_bytes(
        length + checksums([length], 1).tobytes() + b"x" * 100
    )
    (tmp_path / "schema.yaml").write_text(
        "{name: x, origin: y, columns: {a: {type: int}, b: {type: int}}, label: {column: b, "
        "classes: [x, y]}, "
        "deep: [{column: a, numeric: z_score}]}"
    )
    words = ["--dataset", "tfrecord", "--source", tmp_path, "--schema", tmp_path / "schema.yaml"]
    message = refused(convert, *words, "--output", tmp_path / "out")
    assert "wrong length or checksum of the record at byte 0" in message

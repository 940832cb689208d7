"""What the pipeline's steps do that convert a dataset, by one task or by several, each on any machine.

    shares = split(["--dataset=mnist"], "", "", work, tasks=3)       # of those that look
    for share in shares: do("look", share, work)
    for share in to_write(work): do("write", share, work)
    with given(work) as (_, options): place, described = make(options, "", page)

All see one folder of work, where what is done is noted, so that any of them can be done again.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence

from components.convert import store
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.writing import output
from components.convert.writing.notes import Notes
from components.files.reading import opened
from trainer.base.errors import escape_output
from trainer.base.files import write_text

_ASKED, _DATASET = "asked.json", "dataset"
# Of one task that finds nothing to do: a loop over nothing fails in kfp.local, and nobody promises one on Vertex AI.
_NOTHING = ["0/1"]


@contextlib.contextmanager
def asked(convert_args: Sequence[str], schema: str, place: str) -> Iterator[Options]:
    """What to convert, by a step's arguments, as long as the file is there that has the schema's text."""
    escape_output()
    place = re.sub("^/gcs/", "gs://", place)  # of a mounted bucket no file can be renamed or locked
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".yaml") as file:
        file.write(schema)
        file.flush()
        yield Options.parse(convert_args, "components.convert", schema=file.name if schema else None, output=place)


def split(convert_args: Sequence[str], schema: str, directory: str, work: str, *, tasks: int) -> list[str]:
    """Cuts the source, unless the directory that runs of this machine share has the dataset. Returns the shares of those that look."""
    os.makedirs(work, exist_ok=True)
    if directory:
        with store.held(pathlib.Path(directory)):
            tasks = 0 if store.ready(pathlib.Path(directory)) else tasks
    write_text(pathlib.Path(work, _ASKED), json.dumps([tasks, convert_args, schema]))
    with given(work) as (_, options):
        if not tasks:
            return _NOTHING
        convert(dataclasses.replace(options, stage="cut"))
        plan = Notes(output.work(options.directory)).get("plan")
        return to_write(work) if plan and plan["looks"] else _NOTHING


def to_write(work: str) -> list[str]:
    """The shares of the tasks that write."""
    with given(work) as (tasks, _):
        return [f"{i}/{tasks}" for i in range(tasks)] or _NOTHING


def do(stage: str, share: str, work: str) -> None:
    """Does a share, such as `0/3`, of a stage: `look` or `write`."""
    with given(work) as (tasks, options):
        if tasks:
            convert(dataclasses.replace(options, stage=stage, task=share))


@contextlib.contextmanager
def given(work: str) -> Iterator[tuple[int, Options]]:
    """How many tasks write into a folder of work, and what."""
    tasks, convert_args, schema = json.loads(pathlib.Path(work, _ASKED).read_text(encoding="utf-8"))
    with asked(convert_args, schema, f"{work}/{_DATASET}") as options:
        yield tasks, options


def make(options: Options, directory: str, page: str) -> tuple[str, dict[str, str | int]]:
    """Makes the dataset, or what is left to do of it, in the directory that runs of this machine share, if there is one.

    Returns where it is, and what a console shows of it beside the page, which is copied.
    """
    place = pathlib.Path(directory)
    with store.held(place) if directory else contextlib.nullcontext():
        if directory and (manifest := store.ready(place)):
            print(f"{directory}: another run has converted it")
        else:
            # What others have written is kept if this fails; what is lost of it is done again.
            cut = Notes(output.work(options.directory)).get("plan")
            for stage in ("look", "write", "merge") if cut else (None,):
                target = options.output if cut or not directory else directory
                manifest = convert(dataclasses.replace(options, stage=stage, output=target))
            if cut and directory:
                shutil.move(options.output, place)  # in a container they are mounts of their own
        made = directory or options.output
        with opened(f"{made}/{output.PAGE}") as text, open(page, "wb") as copy:
            shutil.copyfileobj(text, copy)
    counts = {split: part.examples for split, part in manifest.splits.items()}
    return made, {"name": manifest.name, "fingerprint": manifest.fingerprint, **counts}

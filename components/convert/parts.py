"""A conversion in parts: several commands, on one machine or several, write shards into one directory.

    write_part(options, "0:4")      # of 8 training shards, and of the others in proportion
    write_part(options, "4:8")      # at the same time, or after it was killed, or twice
    finish(options)                 # checks all of them and writes the manifest

Until they are finished, shards lie in `.parts`. Beside each one lies a note with its checksum, and with what decided its
content: what comes of another source or other arguments is refused.
"""

import contextlib
import dataclasses
import json
import pathlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from components.convert import convert as whole
from components.convert.options import Options
from components.convert.plan import Plan, Planned
from components.convert.sources.registry import source_digest
from components.convert.writing import output, workers
from components.convert.writing.progress import track
from trainer.base.errors import UserError, readable
from trainer.base.files import write_text
from trainer.base.manifest import Manifest, Shard


def within(shard: Planned, start: int, stop: int, count: int) -> bool:
    """Whether it is a training shard from `start` to `stop`, of `count`, or one of another split in proportion."""
    return start * shard.count // count <= shard.position < stop * shard.count // count


def write_part(options: Options, text: str) -> None:
    """Writes the shards of a range, `START:STOP` of the training shards, that are not there yet.

    Raises:
      UserError: If it is no such range, the source cannot be read, or the output directory holds anything else. What is
        finished stays.
    """
    start, stop = _parse(text, options.shards)
    started, directory = time.perf_counter(), pathlib.Path(options.output)
    parts = directory / output.PARTS
    with output.claim(directory, shared=True):
        if existing := output.finished(directory, parts=True):
            output.refuse_other(directory, existing.arguments, options.arguments)
            print(f"{directory}: {existing.name} is finished already, nothing is changed")
            return
        if not parts.exists():
            output.discard(directory)  # what a whole conversion left that was killed
        plan = whole.read(options)
        identity = _identity(plan, options)
        shards = [shard for shard in plan.shards if within(shard, start, stop, options.shards)]
        there = _written(directory, identity)
        missing = [shard for shard in shards if shard.name not in there]
        output.require_room(directory, plan.num_bytes(missing), files=2 * len(missing))
        parts.mkdir(exist_ok=True)
        try:

            def write(shard: Planned, advance: workers.Advance) -> Shard:
                return _write(plan, shard, parts, identity, advance)

            whole.work(plan, write, missing, options)
        finally:
            with contextlib.suppress(OSError):
                parts.rmdir()  # if nothing was finished
    before = f", {len(there.keys() & {shard.name for shard in shards})} of them were there" * bool(there)
    whole.tell_written(f"{directory}, shards {text} of {options.shards}", shards)
    print(f"{time.perf_counter() - started:.2f} s{before}; when all are written, run this with --finish instead")


def finish(options: Options) -> Manifest:
    """Checks that all shards are there and whole, publishes them and writes the manifest.

    Raises:
      UserError: If shards are missing, damaged or of another conversion; it names them.
    """
    started, directory = time.perf_counter(), pathlib.Path(options.output)
    parts = directory / output.PARTS
    with output.claim(directory):
        existing = output.finished(directory, parts=True)
        if not existing:
            if not parts.exists():
                raise UserError(f"--output {directory}: no shards are there; write them with --shard-range START:STOP")
            plan = whole.read(options)
            written = _written(directory, _identity(plan, options))
            _refuse_missing(plan, written, options.shards)
            _verify(directory, [written[shard.name] for shard in plan.shards])
            manifest = plan.manifest(written, whole.describe(plan, options))
            whole.write_page(plan, manifest, options, parts)
            output.publish(parts, directory, manifest)
    if existing:
        return whole.convert(options)
    whole.tell(directory, manifest, time.perf_counter() - started, "is ready")
    return manifest


def _parse(text: str, count: int) -> tuple[int, int]:
    start, colon, stop = text.partition(":")
    if not (colon and start.isdecimal() and stop.isdecimal() and int(start) < int(stop) <= count):
        raise UserError(f"--shard-range {text}: must be START:STOP of the {count} shards, from 0:1 to 0:{count}")
    return int(start), int(stop)


def _identity(plan: Plan, options: Options) -> dict[str, Any]:
    """All that decides the content of a shard, as it is read back from a note."""
    digest = source_digest(options.dataset, options.source, options.schema)
    return json.loads(json.dumps({**options.arguments, **plan.source.arguments, "source_sha256": digest}))


def _write(
    plan: Plan, shard: Planned, parts: pathlib.Path, identity: Mapping[str, Any], advance: workers.Advance
) -> Shard:
    """Writes a shard in a place of its own, moves it, and writes the note that says it is whole."""
    with tempfile.TemporaryDirectory(dir=parts) as place:
        written = plan.write(shard, pathlib.Path(place), advance=advance)
        for name in written.checksums:
            output.settle(pathlib.Path(place, name), parts / name)
    write_text(parts / f"{shard.name}.json", json.dumps({"identity": identity, "shard": dataclasses.asdict(written)}))
    return written


def _written(directory: pathlib.Path, identity: Mapping[str, Any]) -> dict[str, Shard]:
    """By name the shards that are there; one of another conversion is refused."""
    found = {}
    for path in (directory / output.PARTS).glob("*.json"):
        with readable(path):
            note = json.loads(path.read_text(encoding="utf-8"))
        output.refuse_other(directory, note["identity"], identity)
        shard = Shard(**note["shard"])
        if all(_find(directory, name).exists() for name in shard.checksums):
            found[path.stem] = shard
    return found


def _find(directory: pathlib.Path, name: str) -> pathlib.Path:
    """Where a file is: published already, by a command that was killed, or not yet."""
    return path if (path := directory / name).exists() else directory / output.PARTS / name


def _refuse_missing(plan: Plan, written: Mapping[str, Shard], count: int) -> None:
    missing = [shard for shard in plan.shards if shard.name not in written]
    if missing:
        names = ", ".join(shard.name for shard in missing[:5]) + ", ..." * (len(missing) > 5)
        lacking = [i for i in range(count) if any(within(shard, i, i + 1, count) for shard in missing)]
        raise UserError(
            f"{len(missing)} of {len(plan.shards)} shards are missing: {names}; write them with --shard-range "
            f"{lacking[0]}:{lacking[-1] + 1}, which passes over those that are there"
        )


def _verify(directory: pathlib.Path, shards: Sequence[Shard]) -> None:
    """Compares the files with the notes, and deletes the note of one that is damaged, so that it can be repaired."""
    with track("checking", sum(shard.bytes for shard in shards), "bytes") as advance:
        for shard in shards:
            if not all(output.intact(_find(directory, name), crc32c) for name, crc32c in shard.checksums.items()):
                path = _find(directory, shard.file)
                (directory / output.PARTS / path.with_suffix(".json").name).unlink()
                raise UserError(f"{path} or its index is damaged; write it again with --shard-range")
            advance(shard.bytes)

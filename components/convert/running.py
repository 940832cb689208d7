"""Runs the stages of a conversion in processes of this machine.

    manifest, tallies = run(options, "data/mnist/.converting")

The result of each piece is noted as soon as it is there, so a conversion that was killed goes on where it was.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common.errors import UserError, readable
from common.machine import usable_cores
from common.manifest import Manifest
from common.storage.storage import is_remote, map_in_threads
from components.convert.division import Division
from components.convert.options import Options
from components.convert.origin import Origin
from components.convert.report.tallies import Tallies
from components.convert.stages import Work
from components.convert.writing import output, workers
from components.convert.writing.notes import Notes
from components.convert.writing.progress import track

_SHOWN = 20  # of the rows that are wrong, if they are too many
_PROCESS_BYTES = 1 << 23  # to convert, that make up for the start of a process
_PIECE = "piece"  # what the notes of written pieces begin with
_LABELS = {"look": "looking", _PIECE: "converting"}


def run(options: Options, place: str | None) -> tuple[Manifest, Tallies]:
    """Converts into a directory for unfinished work, or into nothing; finished shards lie in the output directory.

    Returns:
      A manifest that is not written yet, and the statistics.
    """
    notes = Notes(place)
    with readable(f"dataset {options.dataset!r}"):
        origin = Origin.of(options)
        division = _division(origin, notes)
        work = Work(options=options, division=division, source=origin.reader.open(division.cut))
        if division.looks:
            work = work.settled(_do("look", work, lambda i, advance: work.look(i), notes))
    written = _do(_PIECE, work, lambda i, advance: work.write(i, place, advance), notes)
    return work.merge(written, place)


def _division(origin: Origin, notes: Notes) -> Division:
    """Returns that of work that was begun on the same source with the same arguments, or a new one."""
    if noted := notes.get("plan"):
        division = Division.of_json(noted)
        if origin.fits(division):
            return division
    if notes.place:
        output.discard(origin.options.directory)  # what was begun of another
    return Division.of_json(notes.put("plan", dataclasses.asdict(origin.cut())))


def _do(stage: str, work: Work, do: Callable[[int, workers.Advance], Any], notes: Notes) -> list[Any]:
    """Does the pieces of which nothing is noted, and returns the results of all in their order."""
    sizes, names = [piece.num_bytes for piece in work.division.cut.pieces], notes.names
    done = [i for i in range(len(sizes)) if _name(stage, i) in names]
    results = dict(zip(done, map_in_threads(lambda i: notes.get(_name(stage, i)), done), strict=True))
    rest = [i for i in range(len(sizes)) if i not in results]
    due, done_bytes, written_bytes = sum(sizes[i] for i in rest), 0, 0
    if stage == _PIECE:
        _refuse_skipped(results, work.options)
    most = usable_cores() * (2 if is_remote(work.options.output) else 1)  # in a bucket some send while others compute
    processes = work.options.processes or min(most, 1 + due // _PROCESS_BYTES)
    with track(_LABELS[stage], max(1, due), "bytes") as advance:

        def one(i: int, advance: workers.Advance) -> Any:
            return notes.put(_name(stage, i), do(i, advance))

        for k, result in workers.run(one, rest, processes=processes, advance=advance):
            results[rest[k]] = result
            if stage != _PIECE:
                continue
            if result["tallies"]["skipped"]:
                _refuse_skipped(results, work.options)
            if notes.place and not is_remote(notes.place):
                done_bytes += sizes[rest[k]]
                written_bytes += sum(part["num_bytes"] for part in result["parts"].values())
                needed_bytes = written_bytes / max(1, done_bytes) * (due - done_bytes)
                output.require_room(work.options.directory, int(needed_bytes))
    return [results[i] for i in range(len(sizes))]


def _refuse_skipped(results: Mapping[int, Mapping[str, Any]], options: Options) -> None:
    """Refuses more wrong rows than may be left out, and shows some of them."""
    rows: Sequence[str] = [row for i in sorted(results) for row in results[i]["tallies"]["skipped"]]
    if len(rows) > (options.skip_bad or 0):
        print(*rows[:_SHOWN], sep="\n", flush=True)
        raise UserError(f"--skip-bad {options.skip_bad}: {len(rows):,} rows are wrong so far, first {rows[0]}")


def _name(stage: str, i: int) -> str:
    return f"{stage}-{i:05d}"

"""Runs the stages of a conversion: all pieces in processes of this machine, or the share of one of several tasks.

    manifest, tallies = run(options, "data/mnist/.converting")

Tasks that work on one conversion, on whatever machines, see one output directory or bucket; what each has done it leaves
there, piece by piece, and so they wait for each other, and a task that is started again goes on where it was.
"""

import time
from collections.abc import Callable
from typing import Any

from components.convert.division import Division
from components.convert.options import Options
from components.convert.origin import Origin
from components.convert.report.tallies import Tallies
from components.convert.stages import Work, processes
from components.convert.writing import output, workers
from components.convert.writing.notes import Notes
from components.convert.writing.progress import track
from components.files.store import parallel
from trainer.base.errors import readable
from trainer.base.files import is_remote
from trainer.base.manifest import Manifest

_LOOK_EVERY_S, _TELL_EVERY_S = 2.0, 30.0  # while others are waited for
_TOLD = {"look": "looking", "piece": "converting"}


def run(options: Options, place: str | None) -> tuple[Manifest, Tallies] | None:
    """Converts into a directory for unfinished work, or into nothing; shards that are done lie in the output directory.

    Returns:
      What has been made, with a manifest that is not written yet; None if this task or stage does not make it.
    """
    notes, stage = Notes(place), options.stage
    with readable(f"dataset {options.dataset!r}"):
        division = _division(origin := Origin.of(options), notes)
        if stage == "cut" or not isinstance(division, Division):
            return None
        work = Work(options=options, division=division, source=origin.reader.open(division.cut))
        if division.looks and stage in (None, "look"):
            _do("look", work, lambda i, advance: work.look(i), notes)
        if stage == "look":
            return None
        if division.looks:
            work = work.settled(_all("look", work, notes))
    if stage in (None, "write"):
        _do("piece", work, lambda i, advance: work.write(i, place, advance), notes)
    if stage == "write" or (stage is None and options.share.index):
        return None
    return work.merge(_all("piece", work, notes), place)


def _division(origin: Origin, notes: Notes) -> Division | Manifest:
    """That of work that was begun on the same source with the same arguments; else a new one, and the work begins anew.

    Whoever waits for others to cut the source, and has no share of it, may find that they have made the dataset.
    """

    def begun() -> Division | None:
        division = Division.of_json(noted) if (noted := notes.get("plan")) else None
        return division if division and origin.fits(division) else None

    options = origin.options
    if division := begun():
        return division
    if options.stage not in (None, "cut") or options.share.index:
        return _awaited(lambda: begun() or output.finished(options.directory), "the first task cuts the source")
    if notes.place:
        output.discard(options.directory)  # what was begun of another
    return Division.of_json(notes.put("plan", origin.cut().json()))


def _do(stage: str, work: Work, do: Callable[[int, workers.Advance], Any], notes: Notes) -> None:
    """Does those pieces of this task's share that nothing is noted of."""
    sizes, there = [piece.num_bytes for piece in work.division.cut.pieces], notes.names
    rest = [i for i in work.options.share.of(len(sizes)) if _name(stage, i) not in there]
    due, done, written = sum(sizes[i] for i in rest), 0, 0
    with track(_TOLD[stage], max(1, due), "bytes") as advance:

        def one(i: int, advance: workers.Advance) -> Any:
            return notes.put(_name(stage, i), do(i, advance))

        for k, result in workers.run(one, rest, processes=processes(work.options, due), advance=advance):
            notes.keep(_name(stage, rest[k]), result)
            done += sizes[rest[k]]
            if stage == "piece" and notes.place and not is_remote(notes.place):
                written += sum(part["num_bytes"] for part in result["parts"].values())
                output.require_room(work.options.directory, int(written / max(1, done) * (due - done)))


def _all(stage: str, work: Work, notes: Notes) -> list[Any]:
    """What is noted of each piece, in their order, as soon as all are done."""
    names = [_name(stage, i) for i in range(len(work.division.cut.pieces))]
    share = work.options.share

    def missing() -> list[int]:
        there = notes.names
        return [i for i, name in enumerate(names) if name not in there]

    if share.count > 1 and (absent := missing()):
        tasks = ", ".join(map(str, sorted({i % share.count for i in absent})))
        _awaited(lambda: not missing(), f"waiting for pieces of task {tasks}")
    return parallel(notes.get, names) if notes.place and is_remote(notes.place) else [*map(notes.get, names)]


def _name(stage: str, i: int) -> str:
    return f"{stage}-{i:05d}"


def _awaited(look: Callable[[], Any], told: str) -> Any:
    """What `look` gives, as soon as it gives anything."""
    due = time.monotonic() + _TELL_EVERY_S
    while not (given := look()):
        time.sleep(_LOOK_EVERY_S)
        if time.monotonic() > due:
            print(told, flush=True)
            due += _TELL_EVERY_S
    return given

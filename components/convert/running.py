"""Runs the stages of a conversion: all pieces in processes of this machine, or the share of one of several tasks.

    manifest, tallies = run(options, "data/mnist/.converting")

Tasks that work on one conversion, on whatever machines, see one output directory or bucket; what each has done it leaves
there, piece by piece, and so they wait for each other, and a task that is started again goes on where it was.
"""

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from components.convert.division import Division
from components.convert.options import Options
from components.convert.origin import Origin
from components.convert.report.tallies import Tallies
from components.convert.stages import Work
from components.convert.writing import output, workers
from components.convert.writing.notes import Notes
from components.convert.writing.progress import track
from components.files.listing import listed
from components.files.store import parallel
from trainer.base.errors import UserError, readable
from trainer.base.files import is_remote
from trainer.base.machine import usable_cores
from trainer.base.manifest import Manifest

_LOOK_EVERY_S, _TELL_EVERY_S = 2.0, 30.0  # while others are waited for
_BEAT_EVERY_S = 60.0  # of the first task while it cuts the source, which leaves nothing else until it has
_SHOWN = 20  # of the rows that are wrong, if they are too many
_PROCESS_BYTES = 1 << 23  # to convert, that make up for the start of a process
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
        if place:  # of its own, where no late task that knows another division writes
            notes = Notes(place := f"{place}/{division.digest}")
        work = Work(options=options, division=division, source=origin.reader.open(division.cut))
        if division.looks and stage in (None, "look"):
            _do("look", work, lambda i, advance: work.look(i), notes)
        if stage == "look":
            return None
        if division.looks:
            work = work.settled(_all("look", work, notes))
    if stage in (None, "write"):
        _do("piece", work, lambda i, advance: work.write(i, place, advance), notes)
    if not options.merges:
        return None
    written = _all("piece", work, notes)
    _refuse({_name("piece", i): each["tallies"]["skipped"] for i, each in enumerate(written)}, options)
    return work.merge(written, place)


def _division(origin: Origin, notes: Notes) -> Division | Manifest:
    """That of work that was begun on the same source with the same arguments; else a new one, and the work begins anew.

    Whoever finds no plan, or waits for one, may find that others have made the dataset.
    """

    def begun() -> Division | None:
        division = Division.of_json(noted) if (noted := notes.get("plan")) else None
        return division if division and origin.fits(division) else None

    def told() -> str:
        other = "; what lies there was begun with other flags or files" if notes.get("plan") else ""
        return f"waiting for the first task to cut the source{other}"

    options = origin.options
    if division := begun():
        return division
    if options.stage not in (None, "cut") or options.share.index:
        done = functools.partial(output.finished, options.directory)
        return _awaited(lambda: begun() or done(), told, options)
    if notes.place:
        left = output.unfinished(options.directory)
        if given := begun() or output.finished(options.directory):
            return given  # since this task looked; of it nothing may be deleted
        output.discard(options.directory, left)  # what was begun of another
    with _beating(notes) if options.shared else contextlib.nullcontext():
        division = origin.cut()
    return Division.of_json(notes.put("plan", dataclasses.asdict(division)))


def _do(stage: str, work: Work, do: Callable[[int, workers.Advance], Any], notes: Notes) -> None:
    """Does those pieces of this task's share that nothing is noted of."""
    sizes, there = [piece.num_bytes for piece in work.division.cut.pieces], notes.names
    rest = [i for i in work.options.share.of(len(sizes)) if _name(stage, i) not in there]
    due, done, written = sum(sizes[i] for i in rest), 0, 0
    wrong: dict[str, Sequence[str]] = {}
    if stage == "piece" and work.options.skip_bad:
        noted = [name for name in sorted(there) if name.startswith(stage)]
        found = zip(noted, parallel(notes.get, noted), strict=True)
        wrong = {name: note["tallies"]["skipped"] for name, note in found if note}
        _refuse(wrong, work.options)
    most = usable_cores() * (2 if is_remote(work.options.output) else 1)  # in a bucket some send while others compute
    processes = work.options.processes or min(most, 1 + due // _PROCESS_BYTES)
    with track(_TOLD[stage], max(1, due), "bytes") as advance:

        def one(i: int, advance: workers.Advance) -> Any:
            return notes.put(_name(stage, i), do(i, advance))

        for k, result in workers.run(one, rest, processes=processes, advance=advance):
            name = _name(stage, rest[k])
            notes.keep(name, result)
            done += sizes[rest[k]]
            if stage == "piece" and (skipped := result["tallies"]["skipped"]):
                wrong[name] = skipped
                _refuse(wrong, work.options)
            if stage == "piece" and notes.place and not is_remote(notes.place):
                written += sum(part["num_bytes"] for part in result["parts"].values())
                output.require_room(work.options.directory, int(written / max(1, done) * (due - done)))


def _refuse(wrong: Mapping[str, Sequence[str]], options: Options) -> None:
    """Refuses more wrong rows, by piece, than may be left out, and shows some of them."""
    rows = [row for name in sorted(wrong) for row in wrong[name]]
    if len(rows) > (options.skip_bad or 0):
        print(*rows[:_SHOWN], sep="\n", flush=True)
        raise UserError(f"--skip-bad {options.skip_bad}: {len(rows):,} rows are wrong so far, first {rows[0]}")


def _all(stage: str, work: Work, notes: Notes) -> list[Any]:
    """What is noted of each piece, in their order, as soon as all are done."""
    names = [_name(stage, i) for i in range(len(work.division.cut.pieces))]
    share = work.options.share

    def missing() -> list[int]:
        there = notes.names
        return [i for i, name in enumerate(names) if name not in there]

    if share.count > 1 and (absent := missing()):
        tasks = ", ".join(map(str, sorted({i % share.count for i in absent})))
        done = functools.partial(output.finished, work.options.directory)
        _awaited(lambda: not missing() or done(), lambda: f"waiting for pieces of task {tasks}", work.options)
    found = parallel(notes.get, names) if notes.place and is_remote(notes.place) else [*map(notes.get, names)]
    if None in found:
        if work.options.stage:
            first = "look" if stage == "look" else "write"
            raise UserError(
                f"--stage {work.options.stage}: {found.count(None)} of {len(found)} pieces are not done yet; "
                f"give the same command with --stage {first} first, in all tasks"
            )
        raise UserError(
            f"{notes.place}: what other tasks have noted is gone; has it been deleted, or the dataset made?"
        )
    return found


def _name(stage: str, i: int) -> str:
    return f"{stage}-{i:05d}"


@contextlib.contextmanager
def _beating(notes: Notes) -> Iterator[None]:
    """Notes now and then, as long as the block lasts, that this task lives."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_BEAT_EVERY_S):
            with contextlib.suppress(UserError, OSError):  # what is wrong with the place, the plan will tell
                notes.put("beat", time.time())

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _awaited(look: Callable[[], Any], told: Callable[[], str], options: Options) -> Any:
    """What `look` gives, as soon as it gives anything.

    Raises:
      UserError: If nothing has changed in the directory of unfinished work for as long as the options allow.
    """
    place, seen, since = output.work(options.directory), None, time.monotonic()
    due = since + _TELL_EVERY_S
    while not (given := look()):
        if seen != (seen := listed(place)):
            since = time.monotonic()
        elif time.monotonic() > since + options.silence_timeout_s:
            raise UserError(
                f"{told()}: nothing was done for {options.silence_timeout_s:g} s (--silence-timeout-s); "
                "start that task again, and then this one; what is done is not done again"
            )
        time.sleep(_LOOK_EVERY_S)
        if time.monotonic() > due:
            print(told(), flush=True)
            due += _TELL_EVERY_S
    return given

"""Converts a dataset to TFRecord shards and a manifest.

    manifest = convert(Options(dataset="mnist", source="downloads/mnist", output="data/mnist"))

The same source and arguments give the same bytes in every file, on any number of processes. What a conversion that was
killed has finished of the pieces of its source, the next one does not do again.
"""

import time
from collections.abc import Callable
from typing import Any

from components.convert.division import Division
from components.convert.options import Options
from components.convert.report import drift
from components.convert.report.tallies import Tallies
from components.convert.sources import registry
from components.convert.sources.base import Reader
from components.convert.stages import Work, Written, cut, listing
from components.convert.writing import output, workers
from components.convert.writing.notes import Notes
from components.convert.writing.progress import track
from components.files.listing import found
from components.files.writing import created
from trainer.base.errors import UserError, readable
from trainer.base.files import is_remote
from trainer.base.machine import usable_cores
from trainer.base.manifest import Manifest

_PROCESS_BYTES = 1 << 26  # to convert, that make up for the start of a process


def convert(options: Options) -> Manifest:
    """Converts, or finds that the output directory already holds the result.

    Raises:
      UserError: If the source cannot be read, or the output directory holds anything else. Nothing is left behind.
    """
    started = time.perf_counter()
    directory = options.output.rstrip("/")
    with output.claim(directory):
        existing = output.finished(directory)
        if existing:
            output.refuse_other(directory, existing.arguments, options.arguments)
            output.verify(directory, existing)
            manifest, tallies = _converted(options, None)
            old, new = ({"dataset": m.name, "fingerprint": m.fingerprint[:12]} for m in (existing, manifest))
            output.refuse_other(directory, old, new)
            output.tidy(directory)
            outcome = "was already there, nothing is changed"
            if not found(f"{directory}/{output.PAGE}"):
                _write_page(manifest, tallies, options)
                outcome = f"was already there, without {output.PAGE}, which is made again"
        else:
            manifest, outcome = output.build(directory, lambda place: _build(options, place)), "is ready"
    _tell(directory, manifest, time.perf_counter() - started, outcome)
    return manifest


def _build(options: Options, place: str) -> Manifest:
    """Makes all of a dataset but its manifest, from what lies at the place or anew."""
    manifest, tallies = _converted(options, place)
    for name, split in manifest.splits.items():
        count = len(split.shards)
        print(f"{name}: {split.examples:,} examples in {count} shard{'s' * (count != 1)}", flush=True)
    _write_page(manifest, tallies, options)
    return manifest


def _converted(options: Options, place: str | None) -> tuple[Manifest, Tallies]:
    """Converts into a directory for unfinished work, or into nothing; shards that are done lie in the output directory."""
    if type(registry.find_reader(options.dataset, **options.reading)).cut is Reader.cut:
        from components.convert import whole

        manifest, tallies = whole.converted(options, place)
    else:
        manifest, tallies = _divided(options, place)
    for encoding in (*manifest.deep, *manifest.wide):
        name = encoding.columns[0]
        if encoding.kind == "numeric" and manifest.splits["train"].summaries[name].mean is None:
            raise UserError(f"column {name!r} has no values in the training split, so it cannot be normalised")
    drift.require(manifest.splits, options.max_drift)
    return manifest, tallies


def _divided(options: Options, place: str | None) -> tuple[Manifest, Tallies]:
    notes = Notes(place)
    with readable(f"dataset {options.dataset!r}"):
        work = Work(options, _division(options, notes))
        if work.looks:
            work = work.settled(_each("look", work, lambda i, advance: work.look(i), notes))
    written = _each("piece", work, lambda i, advance: work.write(i, place, advance).json(), notes)
    merged = work.merge([Written.of_json(each) for each in written], place)
    rows = merged.left_out + len(merged.skipped) + sum(split.examples for split in merged.manifest.splits.values())
    if merged.left_out:
        print(f"{merged.left_out:,} of {rows:,} rows are left out by the schema's filter", flush=True)
    if merged.rounded:
        print(f"{merged.rounded:,} targets of {rows:,} rows are larger than 16,777,216 and rounded to 32-bit numbers")
    if len(merged.skipped) > (options.skip_bad or 0):
        raise UserError(
            f"--skip-bad {options.skip_bad}: {len(merged.skipped):,} rows are wrong, first {merged.skipped[0]}"
        )
    if merged.skipped:
        print(
            f"{len(merged.skipped):,} of {rows:,} rows are wrong and left out; {output.SKIPPED} lists them", flush=True
        )
        if place:
            with created(f"{options.output.rstrip('/')}/{output.SKIPPED}") as file:
                file.write("".join(f"{line}\n" for line in merged.skipped).encode())
    return merged.manifest, merged.tallies


def _division(options: Options, notes: Notes) -> Division:
    """That of unfinished work, if it is of the same source and arguments; else a new one, and the work begins anew."""
    if (noted := notes.get("plan")) and (division := Division.of_json(noted)).fits(options, listing(options)):
        return division
    if notes.place:
        output.discard(options.output.rstrip("/"))  # what was begun of another
    return Division.of_json(notes.put("plan", cut(options).json()))


def _each(stage: str, work: Work, do: Callable[[int, workers.Advance], Any], notes: Notes) -> list[Any]:
    """What is noted of each piece; of those that nothing is noted of, it is done now."""
    sizes = [piece.num_bytes for piece in work.division.cut.pieces]
    names = [f"{stage}-{i:05d}" for i in range(len(sizes))]
    there = notes.names
    done = {i: notes.get(name) for i, name in enumerate(names) if name in there}
    rest = [i for i in range(len(sizes)) if i not in done]
    due = sum(sizes[i] for i in rest)
    processes = work.options.processes or min(usable_cores(), 1 + due // _PROCESS_BYTES)
    with track({"look": "looking", "piece": "converting"}[stage], max(1, due), "bytes") as advance:

        def one(i: int, advance: workers.Advance) -> Any:
            return notes.put(names[i], do(i, advance))

        for k, result in workers.run(one, rest, processes=processes, advance=advance):
            done[rest[k]] = result
            if stage == "piece" and notes.place and not is_remote(notes.place):
                written = sum(part["num_bytes"] for each in done.values() for part in each["parts"].values())
                came = sum(sizes[i] for i in done)
                output.require_room(work.options.output, int(written / came * (sum(sizes) - came)))
    return [done[i] for i in range(len(sizes))]


def _write_page(manifest: Manifest, tallies: Tallies, options: Options) -> None:
    """Writes the page of the dataset into the output directory, whole or not at all."""
    from components.convert.report import page  # what it needs is slow to import

    text = page.render(manifest, tallies, max_drift=options.max_drift)
    with created(f"{options.output.rstrip('/')}/{output.PAGE}") as file:
        file.write(text.encode())


def _tell(directory: str, manifest: Manifest, seconds: float, outcome: str) -> None:
    """Prints what the directory holds now."""
    examples = sum(split.examples for split in manifest.splits.values())
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    print(
        f"{directory}: {manifest.name} {outcome}: {examples:,} examples in {len(shards)} shards, "
        f"{sum(shard.bytes for shard in shards):,} bytes; {seconds:.2f} s, {examples / seconds:,.0f} examples/s"
    )

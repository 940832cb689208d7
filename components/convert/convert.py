"""Converts a dataset to TFRecord shards and a manifest.

    manifest = convert(Options(dataset="mnist", source="downloads/mnist", output="data/mnist"))

The same source and arguments give the same bytes in every file, on any number of processes and in any memory.
"""

import functools
import pathlib
import time

from components.convert.options import Options
from components.convert.plan import Plan
from components.convert.report import drift
from components.convert.report.tallies import Tallies
from components.convert.sources import registry
from components.convert.writing import output, workers
from components.convert.writing.column_store import Store
from components.convert.writing.progress import track
from trainer.base.errors import readable
from trainer.base.files import write_text
from trainer.base.machine import memory_bytes, usable_cores
from trainer.base.manifest import Manifest, Shard

_PROCESS_BYTES = 1 << 26  # to write, that make up for the start of a process
_MEMORY_SHARE = 0.5  # of what the machine has, unless options say more


def convert(options: Options) -> Manifest:
    """Converts, or finds that the output directory already holds the result.

    Raises:
      UserError: If the source cannot be read, or the output directory holds anything else. Nothing is left behind.
    """
    started = time.perf_counter()
    directory = pathlib.Path(options.output)
    with output.claim(directory):
        existing = output.finished(directory)
        if existing:
            output.refuse_other(directory, existing.arguments, options.arguments)
        plan = read(options)
        processes = options.processes or min(usable_cores(), 1 + plan.num_bytes // _PROCESS_BYTES)
        tallies = plan.tally(processes=processes)
        described = tallies.describe()
        drift.require(described, options.max_drift)
        if existing:
            # What was written is compared with its checksums, and what is known of every feature with the source.
            written = {pathlib.Path(s.file).stem: s for split in existing.splits.values() for s in split.shards}
            manifest = plan.manifest({shard.name: written.get(shard.name) for shard in plan.shards}, described)
            old, new = ({"dataset": m.name, "fingerprint": m.fingerprint[:12]} for m in (existing, manifest))
            output.refuse_other(directory, old, new)
            output.verify(directory, existing)
            output.tidy(directory)
            outcome = "was already there, nothing is changed"
            if not (directory / output.PAGE).exists():
                _write_page(manifest, tallies, options, directory)
                outcome = f"was already there, without {output.PAGE}, which is made again"
        else:

            def build(place: pathlib.Path) -> Manifest:
                output.require_room(directory, plan.num_bytes, files=3 * len(plan.shards))
                written = _write(plan, place, processes)
                manifest = plan.manifest(written, described)
                for name, split in manifest.splits.items():
                    count = len(split.shards)
                    print(f"{name}: {split.examples:,} examples in {count} shard{'s' * (count != 1)}", flush=True)
                _write_page(manifest, tallies, options, place)
                return manifest

            manifest, outcome = output.build(directory, build), "is ready"
    _tell(directory, manifest, time.perf_counter() - started, outcome)
    return manifest


def read(options: Options) -> Plan:
    """Reads the source, which may not be what it should be, and plans its conversion."""
    budget = options.memory_gb * 1e9 if options.memory_gb else _MEMORY_SHARE * memory_bytes()
    store = Store(budget_bytes=budget, directory=pathlib.Path(options.output))
    with readable(f"dataset {options.dataset!r}"):
        source = registry.read(options.dataset, options.source, store, **options.reading)
    return Plan(source, options)


def _write_page(manifest: Manifest, tallies: Tallies, options: Options, directory: pathlib.Path) -> None:
    """Writes the page of the dataset into the directory, whole or not at all."""
    from components.convert.report import page  # what it needs is slow to import

    text = page.render(manifest, tallies, max_drift=options.max_drift)
    write_text(directory / output.PAGE, text)


def _write(plan: Plan, place: pathlib.Path, processes: int) -> dict[str, Shard]:
    """Writes all shards, several at once; returns by name what was written."""

    with track("writing", sum(shard.stop - shard.start for shard in plan.shards), "examples") as advance:
        write = functools.partial(plan.write, place)
        done = workers.run(write, plan.shards, processes=processes, advance=advance)
        return {plan.shards[i].name: written for i, written in done}


def _tell(directory: pathlib.Path, manifest: Manifest, seconds: float, outcome: str) -> None:
    """Prints what the directory holds now."""
    examples = sum(split.examples for split in manifest.splits.values())
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    print(
        f"{directory}: {manifest.name} {outcome}: {examples:,} examples in {len(shards)} shards, "
        f"{sum(shard.bytes for shard in shards):,} bytes; {seconds:.2f} s, {examples / seconds:,.0f} examples/s"
    )

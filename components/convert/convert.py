"""Converts a dataset to TFRecord shards and a manifest.

    manifest = convert(Options(dataset="mnist", source="downloads/mnist", output="data/mnist"))

The same source and arguments give the same bytes in every file, on any number of processes and in any memory.
"""

import pathlib
import time
from collections.abc import Callable, Sequence

from components.convert.options import Options
from components.convert.plan import Plan, Planned
from components.convert.report import drift
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
        described = describe(plan, options)
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
                write_page(plan, manifest, options, directory)
                outcome = f"was already there, without {output.PAGE}, which is made again"
        else:

            def build(place: pathlib.Path) -> Manifest:
                output.require_room(directory, plan.num_bytes(plan.shards), files=2 * len(plan.shards))

                def write(shard: Planned, advance: workers.Advance) -> Shard:
                    return plan.write(shard, place, advance=advance)

                written = work(plan, write, plan.shards, options)
                for split in plan.splits:
                    tell_written(split, [shard for shard in plan.shards if shard.split == split])
                manifest = plan.manifest(written, described)
                write_page(plan, manifest, options, place)
                return manifest

            manifest, outcome = output.build(directory, build), "is ready"
    tell(directory, manifest, time.perf_counter() - started, outcome)
    return manifest


def read(options: Options) -> Plan:
    """Reads the source, which may not be what it should be, and plans its conversion."""
    budget = options.memory_gb * 1e9 if options.memory_gb else _MEMORY_SHARE * memory_bytes()
    store = Store(budget_bytes=budget, directory=pathlib.Path(options.output))
    with readable(f"dataset {options.dataset!r}"):
        source = registry.read(options.dataset, options.source, store, **options.reading)
    return Plan(source, options)


def describe(plan: Plan, options: Options) -> dict[str, drift.Described]:
    """What the splits say of every feature; one further from the training split than the options allow is refused."""
    described = plan.describe(processes=_processes(plan, plan.shards, options))
    drift.require(described, options.max_drift)
    return described


def write_page(plan: Plan, manifest: Manifest, options: Options, directory: pathlib.Path) -> None:
    """Writes the page of the dataset into the directory, whole or not at all."""
    from components.convert.report import page  # what it needs is slow to import

    text = page.render(manifest, plan.source, plan.training, max_drift=options.max_drift)
    write_text(directory / output.PAGE, text)


def work(
    plan: Plan, do: Callable[[Planned, workers.Advance], Shard], shards: Sequence[Planned], options: Options
) -> dict[str, Shard]:
    """Does something that writes, with several shards at once; returns by name what was written."""
    with track("writing", sum(shard.stop - shard.start for shard in shards), "examples") as advance:
        done = workers.run(do, shards, processes=_processes(plan, shards, options), advance=advance)
        return {shards[i].name: written for i, written in done}


def _processes(plan: Plan, shards: Sequence[Planned], options: Options) -> int:
    return options.processes or min(usable_cores(), 1 + plan.num_bytes(shards) // _PROCESS_BYTES)


def tell_written(what: str, shards: Sequence[Planned]) -> None:
    """Prints how many examples and shards there are."""
    examples = sum(shard.stop - shard.start for shard in shards)
    print(f"{what}: {examples:,} examples in {len(shards)} shard{'s' * (len(shards) != 1)}", flush=True)


def tell(directory: pathlib.Path, manifest: Manifest, seconds: float, outcome: str) -> None:
    """Prints what the directory holds now."""
    examples = sum(split.examples for split in manifest.splits.values())
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    print(
        f"{directory}: {manifest.name} {outcome}: {examples:,} examples in {len(shards)} shards, "
        f"{sum(shard.bytes for shard in shards):,} bytes; {seconds:.2f} s, {examples / seconds:,.0f} examples/s"
    )

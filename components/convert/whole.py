"""Converts a source that is read as a whole, one that cannot be cut yet."""

import functools
import pathlib

from components.convert.options import Options
from components.convert.plan import Plan
from components.convert.report.tallies import Tallies
from components.convert.sources import registry
from components.convert.writing import output, workers
from components.convert.writing.column_store import Store
from components.convert.writing.progress import track
from trainer.base.errors import readable
from trainer.base.machine import memory_bytes, usable_cores
from trainer.base.manifest import Manifest, Shard

_PROCESS_BYTES = 1 << 26  # to write, that make up for the start of a process
_MEMORY_SHARE = 0.5  # of what the machine has, unless options say more


def converted(options: Options, place: str | None) -> tuple[Manifest, Tallies]:
    """Writes the shards to the output directory, from a directory for unfinished work; without one looks at those there."""
    plan = read(options)
    directory = pathlib.Path(options.output)
    processes = options.processes or min(usable_cores(), 1 + plan.num_bytes // _PROCESS_BYTES)
    tallies = plan.tally(processes=processes)
    if place is None:
        existing = Manifest.load(directory)
        written = {pathlib.Path(s.file).stem: s for split in existing.splits.values() for s in split.shards}
        written = {shard.name: written.get(shard.name) for shard in plan.shards}
    else:
        output.require_room(options.output, plan.num_bytes)
        pathlib.Path(place).mkdir(exist_ok=True)
        written = _write(plan, pathlib.Path(place), processes)
        for path in sorted(path for path in pathlib.Path(place).iterdir() if path.is_file()):
            path.replace(directory / path.name)
    return plan.manifest(written, tallies.describe()), tallies


def read(options: Options) -> Plan:
    """Reads the source, which may not be what it should be, and plans its conversion."""
    budget = options.memory_gb * 1e9 if options.memory_gb else _MEMORY_SHARE * memory_bytes()
    store = Store(budget_bytes=budget, directory=pathlib.Path(options.output))
    with readable(f"dataset {options.dataset!r}"):
        source = registry.read(options.dataset, options.source, store, **options.reading)
    return Plan(source, options)


def _write(plan: Plan, place: pathlib.Path, processes: int) -> dict[str, Shard]:
    """Writes all shards, several at once; returns by name what was written."""

    with track("writing", sum(shard.stop - shard.start for shard in plan.shards), "examples") as advance:
        write = functools.partial(plan.write, place)
        done = workers.run(write, plan.shards, processes=processes, advance=advance)
        return {plan.shards[i].name: written for i, written in done}

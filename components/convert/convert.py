"""Converts a dataset to TFRecord shards and a manifest.

    manifest = convert(Options(dataset="mnist", source="downloads/mnist", output="data/mnist"))

The same source and arguments give the same bytes in every file, on any number of processes. What a conversion that was
killed has finished of the pieces of its source, the next one does not do again.
"""

import time

from common.errors import UserError, writable
from common.manifest import Manifest
from common.storage.files import stat_file, write_text
from components.convert import running
from components.convert.options import Options
from components.convert.report.tallies import Tallies
from components.convert.writing import output
from components.convert.writing.workers import EndedFromOutside


def convert(options: Options) -> Manifest:
    """Converts, or finds that the output directory already holds the result.

    Raises:
      UserError: If the source cannot be read, or the output directory holds anything else. Nothing is left behind.
    """
    started, directory = time.perf_counter(), options.directory
    with output.claim(directory):
        if existing := output.finished(directory):
            output.refuse_other(directory, existing.arguments, options.arguments)
            manifest, outcome = _compared(options, existing)
        else:
            manifest, outcome = _made(options), "is ready"
    _tell(directory, manifest, time.perf_counter() - started, outcome)
    return manifest


def _compared(options: Options, existing: Manifest) -> tuple[Manifest, str]:
    """A dataset that is there, if it is what the source would be converted to now; and what was found of it."""
    directory = options.directory
    output.verify(directory, existing)
    manifest, tallies = _converted(options, None)
    old, new = ({"dataset": m.name, "fingerprint": m.fingerprint[:12]} for m in (existing, manifest))
    output.refuse_other(directory, old, new)
    output.tidy(directory)
    if stat_file(f"{directory}/{output.PAGE}"):
        return manifest, "was already there, nothing is changed"
    _write_page(manifest, tallies, options)
    return manifest, f"was already there, without {output.PAGE}, which is made again"


def _made(options: Options) -> Manifest:
    """Makes a dataset, from unfinished work that lies there or anew."""
    directory = options.directory
    try:
        with writable(f"--output {directory}"):
            manifest, tallies = _converted(options, output.work(directory))
            for name, split in manifest.splits.items():
                count = len(split.shards)
                print(f"{name}: {split.examples:,} examples in {count} shard{'s' * (count != 1)}", flush=True)
            _write_page(manifest, tallies, options)
            output.publish(directory, manifest)
            return manifest
    except EndedFromOutside:
        raise  # what is done is gone on with
    except (UserError, OSError):
        output.discard(directory)
        raise


def _converted(options: Options, place: str | None) -> tuple[Manifest, Tallies]:
    """Converts into a directory for unfinished work, or into nothing; shards that are done lie in the output directory."""
    manifest, tallies = running.run(options, place)
    _tell_rows(options, manifest, tallies, place)
    return manifest, tallies


def _tell_rows(options: Options, manifest: Manifest, tallies: Tallies, place: str | None) -> None:
    """Prints what became of rows that are not as they were in the source, and lists those that were wrong."""
    skipped = tallies.skipped
    rows = tallies.left_out + len(skipped) + sum(split.examples for split in manifest.splits.values())
    if tallies.left_out:
        print(f"{tallies.left_out:,} of {rows:,} rows are left out by the schema's filter", flush=True)
    train = manifest.splits["train"]
    for name, summary in train.summaries.items():
        if summary.missing == train.examples:  # its header or key is perhaps misspelt
            print(f"column {name}: the source has no value of it in any training example; all have the default")
    if skipped:
        print(f"{len(skipped):,} of {rows:,} rows are wrong and left out; {output.SKIPPED} lists them", flush=True)
        if place:
            write_text(f"{options.directory}/{output.SKIPPED}", "".join(f"{line}\n" for line in skipped))


def _write_page(manifest: Manifest, tallies: Tallies, options: Options) -> None:
    """Writes the page of the dataset into the output directory, whole or not at all."""
    from components.convert.report import page  # what it needs is slow to import

    write_text(f"{options.directory}/{output.PAGE}", page.render(manifest, tallies))


def _tell(directory: str, manifest: Manifest, seconds: float, outcome: str) -> None:
    """Prints what the directory holds now."""
    examples = sum(split.examples for split in manifest.splits.values())
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    print(
        f"{directory}: {manifest.name} {outcome}: {examples:,} examples in {len(shards)} shards, "
        f"{sum(shard.bytes for shard in shards):,} bytes; {seconds:.2f} s, {examples / seconds:,.0f} examples/s"
    )

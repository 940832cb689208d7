"""Converts a dataset to TFRecord shards and a manifest.

    manifest = convert(Options(dataset="mnist", source="downloads/mnist", output="data/mnist"))

The same source and arguments give the same bytes in every file, on any number of processes. A
conversion that was killed goes on: a piece whose shards are there is not written again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np

from common.errors import UserError, readable
from common.machine import usable_cores
from common.manifest import FORMAT_VERSION, Manifest, Shard, Split
from common.progress import track
from common.storage.files import sha256_of, write_text
from common.storage.storage import is_remote
from components.convert import engine, output
from components.convert.hashes import content_hashes
from components.convert.options import Options
from components.convert.shards import ShardWriter
from components.convert.source import LABEL, Examples, Opening, Source
from components.convert.sources.registry import find_source
from components.convert.splits import SPLITS, Splits
from components.convert.statistics import Statistics
from components.convert.warnings import print_warnings


def convert(options: Options, beam: Sequence[str] | None = None) -> Manifest:
    """Converts a dataset, or checks that the output directory already holds the result.

    Args:
      options: What to convert, and how.
      beam: Flags of Apache Beam, which then writes the shards; None for processes of this machine.

    Returns:
      The manifest of the dataset.

    Raises:
      UserError: If the source cannot be read or is wrong, the output directory holds anything else,
        or the dataset cannot be written. Nothing is left behind, except by a `ProcessLostError` or
        for want of memory: the next conversion continues what is left then.
      ConnectionError: If a store does not answer. What may be left in a bucket then, the next
        conversion continues or deletes.
    """
    started, directory = time.perf_counter(), options.directory
    with output.claim(directory) as manifest:
        with readable(f"dataset {options.dataset!r}"):
            source = find_source(options.dataset, options.source, **options.source_options)
            plan = _plan(options, source)
        if manifest:
            output.require_same(directory, manifest, plan, options.arguments)
            output.verify(directory, manifest)
            output.tidy(directory)
            outcome = "was already there, nothing is changed"
        else:
            # For a bucket, some processes send while others compute.
            most = usable_cores() * (2 if is_remote(directory) else 1)
            run = functools.partial(engine.run, processes=options.processes or most)
            manifest = _convert(options, source, output.begin(directory, plan), run, beam)
            output.publish(directory, manifest, plan)
            outcome = "is ready"
    seconds = time.perf_counter() - started
    num_examples = sum(split.examples for split in manifest.splits.values())
    print(
        f"{directory}: {manifest.name} {outcome}: {num_examples:,} examples in "
        f"{len(manifest.shards)} shards, {sum(shard.bytes for shard in manifest.shards):,} bytes; "
        f"{seconds:.2f} s, {num_examples / seconds:,.0f} examples/s"
    )
    return manifest


def _plan(options: Options, source: Source) -> str:
    """Returns the SHA-256 (hexadecimal) of what decides the content of the shards.

    Of the source's files, these are path, size, version and time of change. Other facts of an
    object in a bucket, such as when its metadata were changed, decide nothing.

    Raises:
      UserError: If the source has no such files, or something in it cannot be listed.
      OSError: If the schema cannot be read, or a store does not answer.
    """
    plan = {
        "format_version": FORMAT_VERSION,
        "arguments": options.arguments,
        "schema": sha256_of(source.schema) if source.schema else "",
        "files": [
            (file.path, file.num_bytes, file.version, file.changed_ns)
            for file in source.files(options.source)
        ],
    }
    return hashlib.sha256(json.dumps(plan).encode()).hexdigest()


def _convert(
    options: Options,
    source: Source,
    notes: dict[int, Any],
    run: Callable[..., Iterable[tuple[int, Any]]],
    beam: Sequence[str] | None,
) -> Manifest:
    """Writes shards, page and list of skipped rows, and returns the manifest, unwritten.

    Args:
      options: What to convert, and how.
      source: Source of the dataset.
      notes: Notes of the finished pieces, by number. Those of the others are added.
      run: Runs a function for each task in processes of this machine.
      beam: Flags of Apache Beam; None for processes of this machine.

    Raises:
      UserError: If the source cannot be read or is wrong, or the output's disk is too small.
      OSError: If the dataset cannot be written, or a store does not answer.
    """
    directory = options.directory
    work = f"{directory}/{output.WORK}"
    splits = Splits(
        validation_fraction=options.validation_fraction,
        test_fraction=options.test_fraction,
        seed=options.split_seed,
    )
    with contextlib.ExitStack() as stack:
        # DuckDB and Arrow fail with a path that is not UTF-8.
        if work.isprintable() and not is_remote(work):
            folder = f"{work}/source"
            os.makedirs(folder, exist_ok=True)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="converting-"))
        opening = Opening(
            directory=folder,
            splits=splits,
            shards=options.shards,
            map=lambda function, tasks: [result for _, result in sorted(run(function, tasks))],
        )
        with readable(f"dataset {options.dataset!r}"):
            examples = source.open(options.source, opening)
        write = run
        if beam is not None:
            from components.convert.beam import run as run_on_beam

            write = functools.partial(run_on_beam, arguments=beam, staged=folder, work=work)
        _write_pieces(examples, splits, directory, notes, write)
    manifest, statistics = _describe(examples, options, [note for _, note in sorted(notes.items())])
    _report(manifest, examples, directory)
    from components.convert.page import render  # What it needs is slow to import.

    write_text(f"{directory}/{output.PAGE}", render(manifest, statistics))
    return manifest


def _report(manifest: Manifest, examples: Examples, directory: str) -> None:
    """Prints what was made, what was left out, and warnings.

    If wrong rows were left out, `skipped.txt` in the directory gets a line for each.
    """
    for name, split in manifest.splits.items():
        shards = len(split.shards)
        print(
            f"{name}: {split.examples:,} examples in {shards} shard{'s' * (shards != 1)}",
            flush=True,
        )
    if examples.left_out:
        print(f"{examples.left_out:,} rows are left out by the schema's filter")
    if examples.skipped:
        print(f"{len(examples.skipped):,} rows are wrong and left out; {output.SKIPPED} lists them")
        lines = "".join(f"{line}\n" for line in examples.skipped)
        write_text(f"{directory}/{output.SKIPPED}", lines)
    print_warnings(manifest, directory)


def _write_pieces(
    examples: Examples,
    splits: Splits,
    directory: str,
    notes: dict[int, Any],
    run: Callable[..., Iterable[tuple[int, Any]]],
) -> None:
    """Writes the pieces that have no note yet, and a note of each.

    Args:
      examples: Opened source.
      splits: Rule by which records are drawn for splits.
      directory: Output directory.
      notes: Notes of the finished pieces, by number. Those of the others are added.
      run: Runs a function for each task, as `engine.run` and `beam.run` do.

    Raises:
      UserError: If the disk has no room for the rest, or a record cannot be used.
      ProcessLostError: If a process was killed, or a job of Apache Beam failed.
    """
    tasks = [i for i in range(len(examples.pieces)) if i not in notes]
    sizes = [examples.pieces[i].num_bytes for i in tasks]
    total, done, written = sum(sizes), 0, 0

    def write(number: int) -> Any:
        note = write_piece(examples, splits, number, directory)
        output.note(directory, number, note)
        return note

    with (
        track("converting", max(1, total), "bytes") as advance,
        futures.ThreadPoolExecutor(1) as background,
    ):
        for i, note in run(write, tasks):
            notes[tasks[i]] = note
            advance(sizes[i])
            done += sizes[i]
            written += sum(part["shard"]["bytes"] for part in note.values())
            if not is_remote(directory):
                output.require_room(directory, int(written / max(1, done) * (total - done)))
                # The disk is busy while others are written. `publish` reports errors.
                shards = [Shard(**part["shard"]) for part in note.values()]
                background.submit(output.flush_shards, directory, shards)


def write_piece(examples: Examples, splits: Splits, number: int, directory: str) -> dict[str, Any]:
    """Writes the shards of a piece, with the same bytes in any process and on any machine.

    Args:
      examples: Opened source.
      splits: Rule by which records are drawn for splits.
      number: Position of the piece in `examples.pieces`.
      directory: Output directory.

    Returns:
      The note of the piece, as JSON: by split, `shard`, the manifest's entry, and `statistics`, the
      state of the shard's `Statistics`.

    Raises:
      UserError: If a record cannot be used.
      OSError: If a shard cannot be written.
    """
    piece, layout = examples.pieces[number], examples.layout()
    # Shards are numbered by split.
    index = sum(other.split == piece.split for other in examples.pieces[:number])
    parts = dict[str, tuple[ShardWriter, Statistics]]()
    with contextlib.ExitStack() as stack:
        for block in examples.blocks(piece):
            inputs = {name: column for name, column in block.columns.items() if name != LABEL}
            hashes = content_hashes(len(block.columns[LABEL]), inputs)
            places = splits.assign(
                hashes if block.keys is None else block.keys,
                native=piece.split,
                natives=examples.native_splits,
                assigned=block.assigned,
            )
            for place in np.unique(places):
                rows, split = np.flatnonzero(places == place), SPLITS[place]
                if split not in parts:
                    writer = ShardWriter(f"{directory}/{split}-{index:05d}", layout)
                    stack.callback(writer.abandon)
                    parts[split] = writer, Statistics(examples, split, of_piece=True)
                writer, statistics = parts[split]
                records = block.take(rows)
                statistics.add(records, hashes[rows])
                writer.append(records.columns, hashes[rows])
        return {
            split: {"shard": dataclasses.asdict(writer.close()), "statistics": statistics.state()}
            for split, (writer, statistics) in parts.items()
        }


def _describe(
    examples: Examples, options: Options, notes: Sequence[Mapping[str, Any]]
) -> tuple[Manifest, dict[str, Statistics]]:
    """Returns the manifest and each split's statistics, given the notes of all pieces in order.

    Raises:
      UserError: If there are no training examples, or none has a value of a column that is to
        be normalised.
    """
    splits, statistics = {}, {split: Statistics(examples, split) for split in SPLITS}
    for split, figures in statistics.items():
        parts = [note[split] for note in notes if split in note]
        for part in parts:
            figures.absorb(part["statistics"])
        shards = tuple(Shard(**part["shard"]) for part in parts)
        splits[split] = Split(
            examples=sum(shard.examples for shard in shards),
            class_histogram=tuple(figures.classes.tolist()),
            shards=shards,
            summaries={name: numbers.summary() for name, numbers in figures.numbers.items()},
        )
    if not splits["train"].examples:
        raise UserError(f"dataset {examples.name!r}: there are no training examples")
    layout, summaries = examples.layout(), splits["train"].summaries or {}
    for encoding in (*examples.deep, *examples.wide):
        name = encoding.columns[0]
        if encoding.kind == "numeric" and summaries[name].mean is None:
            raise UserError(
                f"column {name!r} has no values in the training split, so it cannot be normalised"
            )
    manifest = Manifest(
        name=examples.name,
        origin=examples.origin,
        label=LABEL,
        task=examples.task,
        class_names=examples.class_names,
        targets=examples.targets,
        record_bytes=layout.record_bytes,
        features=tuple(
            dataclasses.replace(
                feature,
                offset=layout.offsets.get(feature.name),
                num_bytes=layout.widths.get(feature.name),
                statistics=None
                if feature.shape or feature.name == LABEL
                else summaries[feature.name],
            )
            for feature in examples.features
        ),
        splits=splits,
        arguments={**options.arguments, **examples.arguments},
        deep=examples.deep,
        wide=examples.wide,
    )
    return manifest, statistics

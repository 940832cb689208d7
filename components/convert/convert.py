"""Converts a dataset to TFRecord shards and a manifest.

    manifest = convert(Options(dataset="mnist", source="downloads/mnist", output="data/mnist"))

The same source and arguments give the same bytes in every file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import time
from collections.abc import Mapping

import numpy as np

from components.convert import output, splits, tfrecord
from components.convert.options import Options
from components.convert.source import Source, find_reader
from trainer.errors import UserError
from trainer.manifest import Manifest, Shard, Split


def convert(options: Options) -> Manifest:
    """Converts, or finds that the output directory already holds the result.

    Raises:
      UserError: If the source cannot be read, or the output directory holds anything else. Nothing is left behind.
    """
    started = time.perf_counter()
    reader = find_reader(options.dataset, options.schema)
    directory = pathlib.Path(options.output)
    with output.claim(directory):
        existing = output.finished(directory)
        if existing:
            old = {key: existing.arguments.get(key) for key in options.arguments}
            if old != options.arguments:
                raise _occupied(directory, old, options.arguments)
        source = reader.read(options.source)
        if existing:
            manifest = _write(source, options, None)
            if manifest.fingerprint != existing.fingerprint:
                old, new = ({"dataset": m.name, "fingerprint": m.fingerprint[:12]} for m in (existing, manifest))
                raise _occupied(directory, old, new)
            output.verify(directory, existing)
        else:
            manifest = output.build(directory, lambda work: _write(source, options, work))
    seconds = time.perf_counter() - started
    examples = sum(split.examples for split in manifest.splits.values())
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    print(
        f"{directory}: {manifest.name} {'was already there, nothing is changed' if existing else 'is ready'}: "
        f"{examples:,} examples in {len(shards)} shards, {sum(shard.bytes for shard in shards):,} bytes; "
        f"{seconds:.2f} s, {examples / seconds:,.0f} examples/s"
    )
    return manifest


def _occupied(directory: pathlib.Path, old: Mapping[str, object], new: Mapping[str, object]) -> UserError:
    differing = [key for key in {**new, **old} if key == "dataset" or old.get(key) != new.get(key)]
    old, new = (" ".join(f"{key}={arguments.get(key)}" for key in differing) for arguments in (old, new))
    return UserError(
        f"--output {directory} holds another dataset ({old}; asked for is {new}); choose another directory or delete it"
    )


def _write(source: Source, options: Options, directory: pathlib.Path | None) -> Manifest:
    """Writes the shards into the directory, or only computes their checksums; returns the manifest."""
    layout, classes = source.layout(), len(source.class_names)
    parts = splits.carve(
        {native: len(columns["label"]) for native, columns in source.splits.items()},
        validation_fraction=options.validation_fraction,
        test_fraction=options.test_fraction,
        seed=options.seed,
    )
    training = len(parts["train"][1])
    if options.shards > training:
        raise UserError(f"--shards {options.shards}: there are only {training} training examples to put into them")
    written = {}
    for split, (native, rows) in parts.items():
        columns = source.splits[native]
        count = max(1, round(options.shards * len(rows) / training))
        shards = _write_shards(split, count, layout, columns, rows, directory)
        histogram = np.bincount(columns["label"][rows], minlength=classes)
        written[split] = Split(examples=len(rows), class_histogram=tuple(histogram.tolist()), shards=shards)
        print(f"{split}: {len(rows):,} examples in {len(shards)} shard{'s' * (len(shards) != 1)}", flush=True)
    return Manifest(
        name=source.name,
        origin=source.origin,
        label="label",
        class_names=source.class_names,
        record_bytes=layout.record_bytes,
        features=tuple(
            dataclasses.replace(
                feature, offset=layout.offsets.get(feature.name), num_bytes=layout.widths.get(feature.name)
            )
            for feature in source.features(parts["train"][1])
        ),
        splits=written,
        arguments={**options.arguments, **source.arguments},
        **source.encodings(parts["train"][1]),
    )


def _write_shards(
    split: str,
    count: int,
    layout: tfrecord.Layout,
    columns: Mapping[str, tfrecord.Column],
    rows: np.ndarray,
    directory: pathlib.Path | None,
) -> tuple[Shard, ...]:
    """Contiguous pieces of the rows, as equal as can be; none of an empty split."""
    shards = []
    for i, piece in enumerate(np.array_split(rows, count) if len(rows) else ()):
        name = f"{split}-{i:05d}-of-{count:05d}"
        file = f"{name}.tfrecord"
        written = tfrecord.write(directory / file if directory else os.devnull, layout, columns, rows=piece)
        shard = Shard(file=file, examples=len(piece), bytes=written.bytes, sha256=written.sha256)
        if layout.record_bytes is None:
            index = written.offsets.astype("<i8").tobytes()
            shard = dataclasses.replace(shard, index=f"{name}.index", index_sha256=hashlib.sha256(index).hexdigest())
            if directory:
                (directory / shard.index).write_bytes(index)
        shards.append(shard)
    return tuple(shards)

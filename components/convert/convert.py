"""Converts a dataset to TFRecord shards and a manifest.

    manifest = convert(Options(dataset="mnist", source="downloads/mnist", output="data/mnist"))

The same source and arguments give the same bytes in every file.
"""

from __future__ import annotations

import math
import os
import pathlib
import time
from collections.abc import Mapping

import numpy as np

from components.convert import output, splits, tfrecord
from components.convert.options import Options
from components.convert.source import Source, find_reader
from trainer.errors import UserError
from trainer.manifest import Feature, Manifest, Shard, Split


def convert(options: Options) -> Manifest:
    """Converts, or finds that the output directory already holds the result.

    Raises:
      UserError: If the source cannot be read, or the output directory holds anything else. Nothing is left behind.
    """
    started = time.perf_counter()
    reader = find_reader(options.dataset)
    directory = pathlib.Path(options.output)
    with output.claim(directory):
        existing = output.finished(directory)
        if existing and existing.arguments != options.arguments:
            raise _occupied(directory, existing.arguments, options.arguments)
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
    shape = source.splits["train"]["image"].shape[1:]
    image_bytes = math.prod(shape)
    classes = len(source.class_names)
    label_bytes = tfrecord.varint_bytes(classes - 1)
    layout = tfrecord.Layout(
        [
            tfrecord.Field(name="image", kind="bytes", num_bytes=image_bytes),
            tfrecord.Field(name="label", kind="int64", num_bytes=label_bytes),
        ]
    )
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
        features=(
            Feature(
                name="image",
                dtype="uint8",
                shape=shape,
                value_range=source.value_range,
                offset=layout.offsets["image"],
                num_bytes=image_bytes,
            ),
            Feature(
                name="label",
                dtype="int64",
                shape=(),
                value_range=(0.0, classes - 1.0),
                offset=layout.offsets["label"],
                num_bytes=label_bytes,
            ),
        ),
        label="label",
        class_names=source.class_names,
        record_bytes=layout.record_bytes,
        splits=written,
        arguments=options.arguments,
    )


def _write_shards(
    split: str,
    count: int,
    layout: tfrecord.Layout,
    columns: Mapping[str, np.ndarray],
    rows: np.ndarray,
    directory: pathlib.Path | None,
) -> tuple[Shard, ...]:
    """Contiguous pieces of the rows, as equal as can be; none of an empty split."""
    shards = []
    for i, piece in enumerate(np.array_split(rows, count) if len(rows) else ()):
        file = f"{split}-{i:05d}-of-{count:05d}.tfrecord"
        size, sha256 = tfrecord.write(directory / file if directory else os.devnull, layout, columns, rows=piece)
        shards.append(Shard(file=file, examples=len(piece), bytes=size, sha256=sha256))
    return tuple(shards)

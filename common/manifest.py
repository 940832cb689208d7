"""What a converted dataset says of itself: `manifest.json`.

The converter writes it last; a directory without one is an unfinished conversion. Trainer and
evaluation take every count, shape and name from here. This module imports neither TensorFlow nor
NumPy; paths may be local or `gs://`.

    manifest = Manifest.load("data/mnist")
    manifest.splits["train"].examples

What a model needs to know of a table, it finds here too; the schema that the converter read is not
needed any more.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, Self

from common import documents
from common.errors import UserError, about, readable, reading
from common.storage.files import read_bytes, write_text

FILE = "manifest.json"
FORMAT_VERSION = 4
CLASSIFICATION, REGRESSION, MULTI_LABEL = "classification", "regression", "multi_label"
HEAD_BYTES = 1 << 16  # of a shard: few to read, and enough to tell it from others
Number = int | float  # A number of JSON stays what it is, as the fingerprint is over its text.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """Exact statistics of the numbers of one column in one split.

    Image files have three, `image.height`, `image.width` (pixels) and `image.bytes`.

    Attributes:
      missing: Examples in which the source has no value and a default stands in for it.
      mean: Of the numbers that the source has, as are `std`, `min` and `max`; None where it has
        none, and of texts.
      std: Standard deviation, with the number of values as divisor.
      min: Smallest.
      max: Largest.
    """

    missing: int = 0
    mean: Number | None = None
    std: Number | None = None
    min: Number | None = None
    max: Number | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """One field of every record.

    Attributes:
      name: Its key in the `tf.train.Example`.
      dtype: Name of the decoded values' type: `uint8` images are stored as raw bytes or encoded,
        `int64` as integers, `float32` as floats, `string` as bytes.
      shape: Shape of one value, without the batch: `(height, width, channels)` of an image, `(k,)`
        of a label with k targets, `()` of anything else.
      encoding: None: the value is stored as it is. `image`: the value is a whole PNG or JPEG file
        of any size; `shape` is what a model gets, after decoding to that many channels and cropping
        and resizing to that height and width.
      value_range: Smallest and largest value that an image or a label can hold; models scale by it.
        None of a column and of a label of regression.
      offset: Bytes from the start of a record (length header included) to the value; None of a
        string and of an encoded image.
      num_bytes: Bytes that the value takes there; None of the same. Integers are varints of that
        fixed width, 10 if any is negative; floats are little-endian; of a vector all values
        together, each as wide as the others.
      unit: Of a column's values, in words.
      default: What stands in for a missing value; None of a column that is never missing.
      missing: Of a column, texts that stand for a missing value in the source; `common.spellings`
        says which values those are. None of others.
      type: Of a column, what its texts in the source say: `float`, `int`, `string`, `bool` (stored
        as the text `true` or `false`) or `time` (stored in seconds); `common.spellings` has how
        they may be written. None of others.
      header: Name that the source has for the column.
      indicates: Column of which this feature says whether it is missing, 1, or not, 0.
      statistics: Of a column, in the training split.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    encoding: str | None = None
    value_range: tuple[Number, Number] | None = None
    offset: int | None = None
    num_bytes: int | None = None
    unit: str | None = None
    default: Number | str | None = None
    missing: tuple[str, ...] | None = None
    type: str | None = None
    header: str | None = None
    indicates: str | None = None
    statistics: Summary | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoding:
    """One way in which a model takes columns: as a number, as a category, an index in `range(categories)`, or as words.

    Attributes:
      kind: `numeric`: (value - mean) / std, by the statistics of the column's feature; 0 if std is
        0. `buckets`: how many of the boundaries are less than or equal to the value.
        `vocabulary`: its position in the vocabulary; `len(vocabulary)` if it is not there.
        `hash`: the hash of its text (`tf.strings.to_hash_bucket_fast` of the string, or of
          `tf.strings.as_string`).
        `cross`: the hash of the texts of several columns, joined by `_X_`.
        `words`: a text, as a model of the user's own takes it; `trainer.models.text` has the
          vocabulary of its words.
      columns: Names of the features; several of a cross, one of any other.
      boundaries: Ascending, of buckets.
      vocabulary: Values, or words, of the training split, the most frequent first, equals by value.
      hash_buckets: Categories of a hash or a cross.
      embedding: Dimension of a category in the deep part; None for one-hot.
    """

    kind: str
    columns: tuple[str, ...]
    boundaries: tuple[Number, ...] | None = None
    vocabulary: tuple[str | int, ...] | None = None
    hash_buckets: int | None = None
    embedding: int | None = None

    @property
    def categories(self) -> int | None:
        """How many categories there are, the one for unknown values included; None of a number."""
        if self.boundaries is not None:
            return len(self.boundaries) + 1
        return self.hash_buckets if self.vocabulary is None else len(self.vocabulary) + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
    """One TFRecord file.

    Attributes:
      file: Its name in the dataset directory.
      examples: Records in it.
      bytes: Its size.
      crc32c: CRC-32C of the file, hexadecimal.
      head_crc32c: That of its first `HEAD_BYTES`, by which a reader knows the file without reading
        all of it.
      hashes: Name of the file beside it that tells records from others in any conversion:
        little-endian uint64 [examples], a hash of all values but the label.
      hashes_crc32c: CRC-32C of that file.
      index: Name of the file beside it that says where records start, if they differ in length:
        little-endian int64 [examples + 1], byte offsets of the records and of the end.
      index_crc32c: CRC-32C of that file.
    """

    file: str
    examples: int
    bytes: int
    crc32c: str
    head_crc32c: str
    hashes: str
    hashes_crc32c: str
    index: str | None = None
    index_crc32c: str | None = None

    @property
    def checksums(self) -> dict[str, str]:
        """CRC-32C of its files, by name."""
        index = {self.index: self.index_crc32c} if self.index else {}
        return {self.file: self.crc32c, self.hashes: self.hashes_crc32c, **index}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """Examples that are used together, for training, validation or test: how many, in which files, and their figures.

    Attributes:
      class_histogram: Examples of each class, in the order of the class names; of `multi_label`
        examples of each label, in the order of the targets; empty of `regression`.
      summaries: By column, and of regression also by `label.TARGET`, statistics of its values. None
        if nobody has looked at them.
    """

    examples: int
    class_histogram: tuple[int, ...]
    shards: tuple[Shard, ...]
    summaries: Mapping[str, Summary] | None = None

    @property
    def checksums(self) -> dict[str, str]:
        """CRC-32C of all files of its shards, by name."""
        return {name: crc32c for shard in self.shards for name, crc32c in shard.checksums.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """A dataset of images or of a table's rows.

    Attributes:
      name: Of the dataset, as given to the converter.
      origin: Where the source comes from, in words.
      features: In the order of their names. A table has all columns of its schema, even those that
        no model takes.
      label: Name of the feature to predict.
      task: What the label is. `classification`: one of the classes, int64 `()`. `regression`: a
        number for each target, float32 `()` of one and `(k,)` of several. `multi_label`: 1 where a
        target applies and 0 where not, int64 `(k,)`.
      class_names: In the order of the label's values; empty but of classification.
      targets: Names of what the label's values are, in their order; empty of classification.
      record_bytes: Length of every record with its framing (16 bytes more than the serialised
        Example); None if they differ, as those with strings or encoded images do. What has an
        offset lies at it all the same.
      splits: By name: `train`, `validation`, `test`.
      arguments: What decided the content; paths and numbers of processes are left out.
      wide: How the linear part of a wide and deep model takes columns; empty of images.
      deep: How its deep part does; empty of images.
    """

    name: str
    origin: str
    features: tuple[Feature, ...]
    label: str
    class_names: tuple[str, ...]
    record_bytes: int | None = None
    splits: Mapping[str, Split]
    arguments: Mapping[str, Any]
    wide: tuple[Encoding, ...] = ()
    deep: tuple[Encoding, ...] = ()
    task: str = CLASSIFICATION
    targets: tuple[str, ...] = ()

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for an example: one for each class or target."""
        return len(self.class_names or self.targets)

    @property
    def target_spreads(self) -> tuple[tuple[float, float], ...]:
        """Of a regression's targets mean and standard deviation in the training split; 1 of a target that is constant."""
        summaries = self.split("train").summaries or {}
        of_targets = [
            summaries.get(f"{self.label}.{name}", Summary(mean=0.0, std=1.0))
            for name in self.targets
        ]
        return tuple((summary.mean or 0.0, summary.std or 1.0) for summary in of_targets)

    @property
    def is_table(self) -> bool:
        """Whether it holds rows of a table; else images."""
        return bool(self.wide or self.deep)

    @property
    def inputs(self) -> tuple[Feature, ...]:
        """The features that a model takes, in the order of their names."""
        taken = {name for encoding in (*self.wide, *self.deep) for name in encoding.columns}
        return tuple(
            f for f in self.features if f.name != self.label and (f.name in taken or not taken)
        )

    @property
    def source_columns(self) -> tuple[Feature, ...]:
        """Inputs that the source of a table has: not those that say whether another one is missing."""
        return tuple(feature for feature in self.inputs if self.is_table and not feature.indicates)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) over everything here: equal fingerprints mean equal bytes in every file."""
        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).hexdigest()

    def feature(self, name: str) -> Feature:
        """The feature of that name."""
        for feature in self.features:
            if feature.name == name:
                return feature
        raise UserError(
            f"dataset {self.name!r} has no feature {name!r} (it has "
            f"{', '.join(f.name for f in self.features)})"
        )

    def split(self, name: str) -> Split:
        """The split of that name, with at least one example."""
        split = self.splits.get(name)
        if split is None or not split.examples:
            others = ", ".join(k for k, s in self.splits.items() if s.examples) or "none"
            raise UserError(
                f"dataset {self.name!r} has no examples in split {name!r} (splits with examples: "
                f"{others})"
            )
        return split

    def _content(self) -> dict[str, Any]:
        fields = dataclasses.asdict(
            self, dict_factory=lambda items: {k: v for k, v in items if v is not None}
        )
        if self.task == CLASSIFICATION:  # which is what a manifest means that says nothing of it
            del fields["task"], fields["targets"]
        return {"format_version": FORMAT_VERSION, **fields}

    def dump(self) -> str:
        """The text of `manifest.json`."""
        return (
            json.dumps(
                {**self._content(), "fingerprint": self.fingerprint}, indent=1, sort_keys=True
            )
            + "\n"
        )

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes `manifest.json` by atomic rename: after this the dataset exists."""
        write_text(os.path.join(directory, FILE), self.dump())

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Reads `manifest.json` of a dataset directory."""
        path = os.path.join(directory, FILE)
        with readable(path), about(path):
            text = read_bytes(path, documents.MOST_BYTES)
        if text is None:
            raise UserError(
                f"{directory}: no {FILE}, so this is no finished dataset (make one with "
                "components.convert, which also "
                "reads other TFRecord files: --dataset tfrecord --source DIR, or tfds:NAME)"
            )
        with reading(path, "convert the dataset again"):
            raw = documents.parse_json(text)
            if raw["format_version"] != FORMAT_VERSION:
                version = raw["format_version"]
                raise UserError(
                    f"{path}: format version {version}; this program reads {FORMAT_VERSION}; "
                    "convert again"
                )
            import pydantic  # Slow to import, and whoever writes one does without.

            manifest = pydantic.TypeAdapter(cls).validate_python(raw)
            if manifest.fingerprint != raw.get("fingerprint"):
                raise UserError(
                    f"{path}: the fingerprint does not fit the content; the file was edited, "
                    "convert again"
                )
            return manifest

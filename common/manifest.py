"""Description of a converted dataset: `manifest.json`.

The converter writes it last; a directory without one is an unfinished conversion. Trainer and
evaluation take every count, shape and name from here. This module imports neither TensorFlow nor
NumPy; paths may be local or `gs://`.

    manifest = Manifest.load("data/mnist")
    manifest.splits["train"].examples

The manifest of a table also has all that a model needs to know of the table's columns, so that the
schema that the converter has read is not needed any more.
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
HEAD_BYTES = 1 << 16  # Quickly read, and enough to tell a shard from others.
# Integers must not become floats when a manifest is read: the fingerprint is over their text.
Number = int | float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """Exact statistics of the values of one column in one split.

    Images that are stored as whole files have three such columns: `image.height` and `image.width`
    (pixels), and `image.bytes`.

    Attributes:
      missing: Number of examples in which the source has no value, so that a default is stored.
      mean: Mean of the values that the source has. This and the next three are None for a column
        without values, and for texts.
      std: Their standard deviation, with the number of values as divisor.
      min: Smallest of them.
      max: Largest of them.
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
      dtype: Type of the decoded values. `uint8` images are stored as raw bytes or as image files,
        `int64` as integers, `float32` as floats, `string` as bytes.
      shape: Shape of one value, without the batch: `(height, width, channels)` of an image, `(k,)`
        of a label with k targets, `()` of anything else.
      encoding: None if the value is stored as it is. `image` if the value is a whole PNG or JPEG
        file of any size; `shape` is then what a model gets, after decoding to that many channels
        and cropping and resizing to that height and width.
      value_range: Smallest and largest value that an image or a label can hold; models scale by it.
        None for a column, and for the label of a regression.
      offset: Bytes from the start of a record (length header included) to the value; None for a
        string and for an image file.
      num_bytes: Number of bytes of the value at that offset; None in the same cases. Integers are
        varints of that fixed width, 10 if any is negative; floats are little-endian. For a vector
        it is the total of all values, which have equal widths.
      unit: Unit of a column's values, in words.
      default: Value that is stored for a missing one; None if the column is never missing.
      missing: Texts that stand for a missing value in the source of a column; `common.spellings`
        says which values these are. None for other features.
      type: Type of a column's texts in the source: `float`, `int`, `string`, `bool` (stored as the
        text `true` or `false`) or `time` (stored in seconds); `common.spellings` says how they may
        be written. None for other features.
      header: Name of the column in the source.
      indicates: Name of another column; this feature is 1 where that one is missing, otherwise 0.
      statistics: Statistics of a column in the training split.
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
    """One way in which a model takes one or more columns as its input.

    The input is a number, a category (an index in `range(categories)`), or words.

    Attributes:
      kind: One of these:
          `numeric`: (value - mean) / std, by the statistics of the column's feature; 0 if std is 0.
          `buckets`: the number of boundaries that are less than or equal to the value.
          `vocabulary`: the value's position in the vocabulary; `len(vocabulary)` if not in it.
          `hash`: the hash of the value's text (`tf.strings.to_hash_bucket_fast` of the string, or
            of `tf.strings.as_string`).
          `cross`: the hash of the texts of several columns, joined by `_X_`.
          `words`: the text itself, for a model that splits it into words; `trainer.models.text` has
            the vocabulary of these.
      columns: Names of the features: several for a cross, one for any other kind.
      boundaries: Ascending boundaries of `buckets`.
      vocabulary: Values, or words, of the training split, the most frequent first; equally frequent
        ones in ascending order.
      hash_buckets: Number of categories of a hash or a cross.
      embedding: Dimension of a category's vector in the deep part; None for one-hot.
    """

    kind: str
    columns: tuple[str, ...]
    boundaries: tuple[Number, ...] | None = None
    vocabulary: tuple[str | int, ...] | None = None
    hash_buckets: int | None = None
    embedding: int | None = None

    @property
    def categories(self) -> int | None:
        """Number of categories; None for `numeric`, whose input is a number.

        For `buckets` it is one more than the number of boundaries. For `vocabulary` and `words` it
        is one more than the size of the vocabulary, as all unknown values are one category.
        """
        if self.boundaries is not None:
            return len(self.boundaries) + 1
        return self.hash_buckets if self.vocabulary is None else len(self.vocabulary) + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
    """One TFRecord file of a split, with the files that belong to it.

    Attributes:
      file: Name in the dataset directory.
      examples: Number of records.
      bytes: Size.
      crc32c: CRC-32C of the file, hexadecimal.
      head_crc32c: CRC-32C of its first `HEAD_BYTES`, by which a reader identifies the file without
        reading all of it.
      hashes: Name of a second file, with a hash of each record's values without the label, by which
        records can be recognised in any conversion: little-endian uint64 [examples].
      hashes_crc32c: CRC-32C of that file.
      index: Name of a third file, if the records differ in length: the byte offsets of the records
        and of the end, little-endian int64 [examples + 1].
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
        """CRC-32C (hexadecimal) of each file of the shard, by the file's name."""
        index = {self.index: self.index_crc32c or ""} if self.index else {}
        return {self.file: self.crc32c, self.hashes: self.hashes_crc32c, **index}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """Examples that are used together, for training, validation or test.

    Attributes:
      examples: Number of examples.
      class_histogram: Number of examples of each class, in the order of the class names; with
        `multi_label` of each target, in the order of the targets; empty with `regression`.
      shards: Files of the split.
      summaries: Statistics by the name of the column, and with `regression` also by `label.TARGET`.
        None if none were computed.
    """

    examples: int
    class_histogram: tuple[int, ...]
    shards: tuple[Shard, ...]
    summaries: Mapping[str, Summary] | None = None

    @property
    def checksums(self) -> dict[str, str]:
        """CRC-32C (hexadecimal) of all files of the split's shards, by the file's name."""
        return {name: crc32c for shard in self.shards for name, crc32c in shard.checksums.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """Description of a dataset of images or of a table's rows.

    Attributes:
      name: Name of the dataset, as given to the converter.
      origin: Where the source comes from, in words.
      features: Fields of a record, in the order of their names. A table has all columns of its
        schema, even those that no model takes.
      label: Name of the feature to predict.
      class_names: Names of the classes, in the order of the label's values; empty for other tasks
        than `classification`.
      record_bytes: Length of every record with its framing (16 bytes more than the serialised
        Example). None if lengths differ, as with strings or image files; a feature that has an
        offset lies at it nevertheless.
      splits: Splits by name: `train`, `validation`, `test`.
      arguments: Arguments of the conversion that decided the content; paths and numbers of
        processes are left out.
      wide: Inputs of the linear part of a wide and deep model; empty for images.
      deep: Inputs of its deep part; empty for images.
      task: Meaning of the label. `classification`: one of the classes, int64 `()`. `regression`: a
        number for each target, float32 `()` for one and `(k,)` for several. `multi_label`: 1 where
        a target applies and 0 where not, int64 `(k,)`.
      targets: Names of the label's values, in their order; empty for `classification`.
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
        """Number of values that a model computes for an example: one for each class or target."""
        return len(self.class_names or self.targets)

    @property
    def target_spreads(self) -> tuple[tuple[float, float], ...]:
        """Mean and standard deviation of each target of a regression, in the training split.

        The standard deviation is given as 1 for a target that is constant. A target without
        statistics has 0 and 1. Raises a `UserError` if there are no training examples.
        """
        summaries = self.split("train").summaries or {}
        of_targets = [
            summaries.get(f"{self.label}.{name}", Summary(mean=0.0, std=1.0))
            for name in self.targets
        ]
        return tuple((summary.mean or 0.0, summary.std or 1.0) for summary in of_targets)

    @property
    def is_table(self) -> bool:
        """True for rows of a table, False for images."""
        return bool(self.wide or self.deep)

    @property
    def inputs(self) -> tuple[Feature, ...]:
        """Features that a model takes, in the order of their names.

        These are the columns of `wide` and `deep`; for images, all features but the label.
        """
        taken = {name for encoding in (*self.wide, *self.deep) for name in encoding.columns}
        return tuple(
            f for f in self.features if f.name != self.label and (f.name in taken or not taken)
        )

    @property
    def source_columns(self) -> tuple[Feature, ...]:
        """Inputs that are columns in the source of a table; empty for images.

        Inputs that only say whether another one is missing are left out.
        """
        return tuple(feature for feature in self.inputs if self.is_table and not feature.indicates)

    @property
    def shards(self) -> list[Shard]:
        """Shards of all splits."""
        return [shard for split in self.splits.values() for shard in split.shards]

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) of the manifest; equal ones mean equal bytes in all files."""
        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).hexdigest()

    def feature(self, name: str) -> Feature:
        """Returns the feature of that name.

        Raises:
          UserError: If there is none.
        """
        for feature in self.features:
            if feature.name == name:
                return feature
        raise UserError(
            f"dataset {self.name!r} has no feature {name!r} (it has "
            f"{', '.join(f.name for f in self.features)})"
        )

    def split(self, name: str) -> Split:
        """Returns the split of that name.

        Raises:
          UserError: If there is none, or it has no examples.
        """
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
        # A manifest without these keys describes a classification, as by the fields' defaults.
        if self.task == CLASSIFICATION:
            del fields["task"], fields["targets"]
        return {"format_version": FORMAT_VERSION, **fields}

    def dump(self) -> str:
        """Returns the text of `manifest.json`."""
        return (
            json.dumps(
                {**self._content(), "fingerprint": self.fingerprint}, indent=1, sort_keys=True
            )
            + "\n"
        )

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes `manifest.json` into a directory, complete or not at all.

        The dataset exists once this returns.

        Raises:
          UserError: If a store refuses the request.
          OSError: If it cannot be written, or a store does not answer.
        """
        write_text(os.path.join(directory, FILE), self.dump())

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Reads `manifest.json` from a dataset directory.

        Raises:
          UserError: If there is no such file, if it cannot be read, has another format version or
            other content than the program writes, or was edited.
          ConnectionError: If a store does not answer.
        """
        path = os.path.join(directory, FILE)
        with readable(path), about(path):
            text = read_bytes(path, documents.MOST_BYTES)
        if text is None:
            raise UserError(
                f"{directory}: no {FILE}, so this is no finished dataset (make one with "
                "components.convert)"
            )
        return cls.parse(text, path)

    @classmethod
    def parse(cls, text: bytes, path: str | os.PathLike[str]) -> Self:
        """Returns the manifest with this content of `manifest.json`.

        Args:
          text: The content.
          path: Path of the file, for messages.

        Raises:
          UserError: If it has another format version or other content than the program writes, or
            was edited.
        """
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

"""What a converted dataset says of itself: `manifest.json`.

The converter writes it last; a directory without one is an unfinished conversion. Trainer and evaluation take every
count, shape and name from here. This module imports neither TensorFlow nor NumPy; paths may be local or `gs://`.

    manifest = Manifest.load("data/mnist")
    manifest.splits["train"].examples
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from etils import epath

from trainer.errors import UserError
from trainer.files import write_text

FILE = "manifest.json"
FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """One field of every record.

    Attributes:
      name: Its key in the `tf.train.Example`.
      dtype: NumPy name of the decoded values: `uint8` images are stored as raw bytes, `int64` as integers.
      shape: Shape of one value, without the batch: `(height, width, channels)` of an image, `()` of a label.
      value_range: Smallest and largest value that the source can hold; models scale by it.
      offset: Bytes from the start of a record (length header included) to the value.
      num_bytes: Bytes that the value takes there. Integers are varints of that fixed width.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    value_range: tuple[float, float]
    offset: int
    num_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
    """One TFRecord file: its name in the dataset directory, records, size and SHA-256 (hexadecimal) of the file."""

    file: str
    examples: int
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """One split: number of examples, examples of each class in the order of the class names, and its files in order."""

    examples: int
    class_histogram: tuple[int, ...]
    shards: tuple[Shard, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """A dataset of equal-length records.

    Attributes:
      name: Of the dataset, as given to the converter.
      origin: Where the source comes from, in words.
      features: In the order of their names.
      label: Name of the feature to predict.
      class_names: In the order of the label's values.
      record_bytes: Length of every record with its framing (16 bytes more than the serialised Example).
      splits: By name: `train`, `validation`, `test`.
      arguments: What decided the content; paths and numbers of processes are left out.
    """

    name: str
    origin: str
    features: tuple[Feature, ...]
    label: str
    class_names: tuple[str, ...]
    record_bytes: int
    splits: Mapping[str, Split]
    arguments: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) over everything here: equal fingerprints mean equal bytes in every file."""
        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).hexdigest()

    def feature(self, name: str) -> Feature:
        """The feature of that name.

        Raises:
          UserError: If there is none.
        """
        for feature in self.features:
            if feature.name == name:
                return feature
        raise UserError(
            f"dataset {self.name!r} has no feature {name!r} (it has {', '.join(f.name for f in self.features)})"
        )

    def split(self, name: str) -> Split:
        """The split of that name, with at least one example.

        Raises:
          UserError: If there is none or it is empty.
        """
        split = self.splits.get(name)
        if split is None or not split.examples:
            held = ", ".join(k for k, s in self.splits.items() if s.examples) or "none"
            raise UserError(f"dataset {self.name!r} has no examples in split {name!r} (splits with examples: {held})")
        return split

    def _content(self) -> dict[str, Any]:
        return {"format_version": FORMAT_VERSION, **dataclasses.asdict(self)}

    def dump(self) -> str:
        """The text of `manifest.json`."""
        return json.dumps({**self._content(), "fingerprint": self.fingerprint}, indent=1, sort_keys=True) + "\n"

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes `manifest.json` by atomic rename: after this the dataset exists."""
        write_text(epath.Path(directory) / FILE, self.dump())

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Manifest:
        """Reads `manifest.json` of a dataset directory.

        Raises:
          UserError: If the directory is no finished dataset, or the manifest was edited.
        """
        path = epath.Path(directory) / FILE
        try:
            raw = json.loads(path.read_text())
        except FileNotFoundError:
            raise UserError(
                f"{directory}: no {FILE}, so this is no finished dataset (make one with components.convert)"
            ) from None
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: {error}") from None
        try:
            if raw["format_version"] != FORMAT_VERSION:
                raise UserError(f"{path}: format version {raw['format_version']}; this program reads {FORMAT_VERSION}")
            manifest = cls._parse(raw)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: not a dataset manifest ({type(error).__name__}: {error})") from None
        if manifest.fingerprint != raw.get("fingerprint"):
            raise UserError(f"{path}: the fingerprint does not fit the content; the file was edited, convert again")
        return manifest

    @classmethod
    def _parse(cls, raw: Mapping[str, Any]) -> Manifest:
        return cls(
            name=raw["name"],
            origin=raw["origin"],
            features=tuple(
                Feature(**{**f, "shape": tuple(f["shape"]), "value_range": tuple(f["value_range"])})
                for f in raw["features"]
            ),
            label=raw["label"],
            class_names=tuple(raw["class_names"]),
            record_bytes=raw["record_bytes"],
            splits={
                name: Split(
                    examples=s["examples"],
                    class_histogram=tuple(s["class_histogram"]),
                    shards=tuple(Shard(**shard) for shard in s["shards"]),
                )
                for name, s in raw["splits"].items()
            },
            arguments=raw["arguments"],
        )

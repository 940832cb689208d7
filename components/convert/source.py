"""What a source gives: examples as their authors split them, in memory or read as they are asked for."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from components.convert.writing.label_feature import label_feature
from components.convert.writing.splits import Rows
from components.convert.writing.tfrecord import Column, Field, Layout
from components.convert.writing.wire_format import varint_bytes
from trainer.base.manifest import CLASSIFICATION, Encoding, Feature


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Examples and what is known of them.

    Attributes:
      name: Of the dataset.
      origin: Where it comes from, in words.
      inputs: The manifest's features but for the label, without statistics.
      splits: The native splits, `train` and whatever else there is of `validation` and `test`, each with its columns by
        name, in the source's order; `label` is among them.
      task: As a manifest has it, like the next two.
      class_names: In the order of the labels, which all lie in `range(len(class_names))`; empty but of classification.
      targets: Names of the label's values, in their order; empty of classification.
      arguments: What decides the content beside the options.
      missing: By split, of each column with a default where a value is missing, bool [N].
      encodings: Gives the manifest's `deep` and `wide`, if any, from which examples of `train` are for training.
    """

    name: str
    origin: str
    inputs: tuple[Feature, ...]
    splits: Mapping[str, Mapping[str, Column]]
    task: str = CLASSIFICATION
    class_names: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    missing: Mapping[str, Mapping[str, np.ndarray]] = dataclasses.field(default_factory=dict)
    encodings: Callable[[Rows], dict[str, tuple[Encoding, ...]]] = lambda training: {}

    @property
    def features(self) -> tuple[Feature, ...]:
        """The manifest's, without statistics."""
        label = label_feature(self.task, len(self.class_names or self.targets))
        return tuple(sorted([*self.inputs, label], key=lambda feature: feature.name))

    def layout(self) -> Layout:
        """How a record is laid out."""
        return Layout([self._field(feature) for feature in self.features])

    def _field(self, feature: Feature) -> Field:
        parts = [columns[feature.name] for columns in self.splits.values()]
        kind, num_bytes = {"uint8": ("bytes", 1), "float32": ("float", 4)}.get(feature.dtype, ("int64", 10))
        if feature.dtype == "string" or feature.encoding:
            return Field(name=feature.name, kind="string", num_bytes=max(int(part.lengths.max()) for part in parts))
        if kind == "int64" and all(part.min() >= 0 for part in parts):
            num_bytes = varint_bytes(max(int(part.max()) for part in parts))
        return Field(name=feature.name, kind=kind, num_bytes=num_bytes * math.prod(feature.shape))

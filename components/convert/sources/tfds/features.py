"""What a prepared dataset of TensorFlow Datasets holds: images, or rows of a table, with what is predicted.

    prepared = tfds.builder_from_directory(directory)
    schema(prepared), splits(prepared)

Images are PNG or JPEG files in the records, which TFDS has shuffled by a hash of their keys.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from tensorflow_datasets.core import DatasetBuilder, DatasetInfo
from tensorflow_datasets.core.features import FeatureConnector

from common.errors import UserError
from components.convert.sources.tfds import inferred_schema
from components.convert.tables.schema import ImageSchema, Schema
from components.convert.writing.splits import NAMES


def schema(prepared: DatasetBuilder) -> Schema | ImageSchema:
    """The schema of the records, if their features and file format are supported."""
    info, name = prepared.info, _name(prepared)
    if info.file_format.value != "tfrecord":
        raise UserError(f"{prepared.data_path}: the files' format is {info.file_format.value}; only tfrecord is read")
    features = dict(_flat(info.features))
    label, image = _label(name, info, features), _image(name, info, features)
    origin, content = f"TensorFlow Datasets, {info.full_name}", {"tfds": str(info.version)}
    common = {"name": name, "origin": origin, "content": content}
    predicted = inferred_schema.predicted(label, features[label])
    if image:
        return ImageSchema(**common, image=image, label=None if "task" in predicted else label, **predicted)
    if others := {key: f for key, f in features.items() if key != label and not inferred_schema.supported(f)}:
        raise _unsupported(name, "has neither an image nor only numbers and texts", others)
    return inferred_schema.infer(features, label, predicted, **common)


def splits(prepared: DatasetBuilder) -> dict[str, list[str]]:
    """By split, the paths of its files."""
    info, name, splits = prepared.info, _name(prepared), {}
    for native, part in info.splits.items():
        if (split := NAMES.get(native)) in splits:
            raise UserError(f"dataset {name!r} has two splits for {split}: {', '.join(info.splits)}")
        if split and part.num_examples:
            splits[split] = part
    if "train" not in splits:
        raise UserError(
            f"dataset {name!r} has no split train with examples (it has {', '.join(info.splits) or 'none'})"
        )
    if others := sorted(set(info.splits) - {part.name for part in splits.values()}):
        print(f"left out, being none of train, validation and test: {', '.join(others)}")
    return {s: [str(path) for path in splits[s].filepaths] for s in ("train", "validation", "test") if s in splits}


def _name(prepared: DatasetBuilder) -> str:
    return f"tfds:{prepared.info.full_name.rpartition('/')[0]}"


def _flat(features: Mapping[str, FeatureConnector], prefix: str = "") -> Iterator[tuple[str, FeatureConnector]]:
    """The features, by the keys that they have in a record."""
    for key, feature in sorted(features.items()):
        if _kind(feature) == "FeaturesDict":
            yield from _flat(feature, f"{prefix}{key}/")
        else:
            yield prefix + key, feature


def _kind(feature: FeatureConnector) -> str:
    """The name of a feature's type."""
    return type(feature).__name__


def _unsupported(name: str, needed: str, features: Mapping[str, FeatureConnector]) -> UserError:
    """An error that lists features."""
    listed = ", ".join(f"{key}: {' '.join(repr(feature).split())}" for key, feature in sorted(features.items()))
    return UserError(f"dataset {name!r} {needed} ({listed})")


def _label(name: str, info: DatasetInfo, features: Mapping[str, FeatureConnector]) -> str:
    labels = [key for key, feature in features.items() if _kind(feature) == "ClassLabel"]
    said = info.supervised_keys[-1] if info.supervised_keys else None
    if isinstance(said, str) and said in features and inferred_schema.predicted(said, features[said]):
        return said
    if len(labels) != 1:
        needed = (
            "needed is one ClassLabel, or supervised_keys that name a number, a short vector of them or of booleans"
        )
        raise _unsupported(name, f"does not say what is predicted; {needed}", features)
    return labels[0]


def _image(name: str, info: DatasetInfo, features: Mapping[str, FeatureConnector]) -> str | None:
    images = [key for key, feature in features.items() if _kind(feature) == "Image"]
    if len(images) > 1 and info.supervised_keys and info.supervised_keys[0] in images:
        images = [info.supervised_keys[0]]
    if len(images) > 1:
        raise _unsupported(name, "has several images; needed is one", features)
    if images and features[images[0]].np_dtype != np.uint8:
        raise _unsupported(name, "has images that are not of 8 bits", features)
    return images[0] if images else None

"""Datasets of TensorFlow Datasets, by name.

    source = TfdsSource(name="tfds:mnist")
    examples = source.open("~/tensorflow_datasets", opening)

`--source` is a directory of prepared datasets, or one prepared dataset, or a directory of the files that one is prepared from, under
their original names; without it the dataset is downloaded. Prepared files are read without TensorFlow. Another process prepares
them: `python -m components.convert.sources.tfds NAME DATA_DIR [MANUAL_DIR]`; this one may have to be forked, which TensorFlow's threads
do not survive.

Of a table nobody says what a model makes of its columns: a number is normalised, a class is one of the categories that it has, a text
one of the thousand most frequent; each element of a vector is a column. For anything else, write CSV files and a schema.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from common import lifeline, quiet
from common.errors import UserError, unknown
from common.manifest import MULTI_LABEL, REGRESSION
from common.storage.files import list_files, require_file
from common.storage.storage import File, is_remote
from components.convert.source import LABEL, Examples, Opening, Paths, Source, digest_of, downloads_dir
from components.convert.splits import NAMES, SPLITS

if TYPE_CHECKING:
    from tensorflow_datasets.core import DatasetBuilder
    from tensorflow_datasets.core.features import FeatureConnector

    from components.convert.schema import ImageSchema, TableSchema

TFDS = "tfds:"
_MOUNT = pathlib.Path("/gcs")  # Where steps on Vertex AI see all buckets.
_NAME = re.compile(r"(?P<dataset>[A-Za-z_]\w*)(/[^/:]+)?(:\d+\.\d+\.\d+)?")
_TEXT_INPUT = {"vocabulary": 1000, "embedding": 8}
_MAX_ELEMENTS = 256  # Of a vector.
_SUPPORTED = ("Tensor", "Scalar", "Text", "ClassLabel")
_TYPES = {"b": "int", "i": "int", "u": "int", "f": "float", "O": "string"}  # By the kind of NumPy's type.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSource(Source):
    """A dataset of TensorFlow Datasets; its name is `tfds:NAME[/CONFIG][:VERSION]`."""

    name: str
    takes = frozenset({"image_size", "encoding"})
    image_size: tuple[int, int] | None = None
    encoding: str | None = None

    def __post_init__(self):
        if not _NAME.fullmatch(self._tfds_name):
            raise UserError(f"dataset {self.name!r} is not {TFDS}NAME[/CONFIG][:VERSION], such as {TFDS}mnist:3.0.1")

    @property
    def _tfds_name(self) -> str:
        return self.name.removeprefix(TFDS)

    def files(self, paths: Paths) -> list[File]:
        """Returns the files of the prepared dataset, or those that it would be prepared from; none if they are downloaded."""
        source_dir = self._source_dir(paths)
        if source_dir and is_remote(str(paths)):
            return list_files(str(paths))  # The store knows checksums, and to find out more would be to read.
        prepared = self._find(source_dir)
        directory = prepared.data_path if prepared else source_dir
        return list_files(str(directory)) if directory else []

    def digest(self, paths: Paths) -> str:
        """Returns the SHA-256 (hexadecimal) over the files; of what is downloaded, over its name with the version."""
        if paths is not None:
            return super().digest(paths)
        return digest_of([((self._find(None) or self._builder()).info.full_name, "")])

    def open(self, paths: Paths, opening: Opening) -> Examples:
        """Has the dataset prepared if need be; that it cannot be had shows within seconds."""
        from components.convert.sources import tfrecords

        source_dir = self._source_dir(paths)
        prepared = self._find(source_dir) or self._prepare(source_dir)
        splits = {split: [*map(require_file, files)] for split, files in _split_paths(prepared).items()}
        schema = _schema(prepared)
        examples = tfrecords.open_records(schema, splits, opening, size=self.image_size, encoding=self.encoding)
        return dataclasses.replace(examples, arguments={"schema": {"tfds": str(prepared.info.version)}})

    def _source_dir(self, paths: Paths) -> pathlib.Path | None:
        if paths is None:
            return None
        if is_remote(str(paths)):
            mounted = _MOUNT / str(paths).removeprefix("gs://")
            if not mounted.is_dir():
                raise UserError(
                    f"{paths}: dataset {self.name!r} is read from this machine; copy it, or mount the bucket"
                )
            paths = str(mounted)
        return pathlib.Path(self.locate_folder(paths, "DIR, prepared datasets or the files that it is made from"))

    def _data_dir(self, source_dir: pathlib.Path | None) -> pathlib.Path:
        """Returns where we keep what was prepared from the network, or from the files in a directory."""
        base = downloads_dir() / "tfds"
        if source_dir is None:
            return base
        stamps = [(file.path, file.num_bytes, file.version) for file in list_files(str(source_dir))]
        return base / f"from-{hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]}"

    def _find(self, source_dir: pathlib.Path | None) -> DatasetBuilder | None:
        """Returns the prepared dataset, if there is one."""
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core import registered

        with self._one_line_errors():
            if source_dir and (source_dir / "features.json").is_file():
                prepared, wanted = tfds.builder_from_directory(source_dir), self._tfds_name.replace(":", "/")
                if not f"{prepared.info.full_name}/".startswith(f"{wanted}/"):
                    raise UserError(f"{source_dir}: holds {TFDS}{prepared.info.full_name}, not {TFDS}{wanted}")
                return prepared
            # What others prepared, in the given directory or where TFDS keeps it; then what we did.
            for ours in (False, True):
                with contextlib.suppress(registered.DatasetNotFoundError):
                    data_dir = self._data_dir(source_dir) if ours else source_dir
                    return tfds.core.read_only_builder.builder_from_files(self._tfds_name, data_dir=data_dir)
        return None

    def _builder(self, data_dir: pathlib.Path | None = None) -> DatasetBuilder:
        """Returns the code that prepares the dataset."""
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core import registered

        try:
            with self._one_line_errors(), quiet.without_advice():  # The code of some imports TensorFlow.
                return tfds.builder(self._tfds_name, data_dir=data_dir)
        except registered.DatasetNotFoundError:
            name = _NAME.fullmatch(self._tfds_name)["dataset"]
            known = tfds.list_builders(with_community_datasets=False)
            nearest = str(unknown("dataset of TensorFlow Datasets", name, known)).partition(" (known")[0]
            raise UserError(f"{nearest}; a prepared one of your own is read with --source DIR") from None

    @contextlib.contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        """Turns what TFDS or a dataset's code raises, of whatever type it is, into one line."""
        from tensorflow_datasets.core import registered

        try:
            yield
        except (UserError, registered.DatasetNotFoundError):
            raise
        except Exception as error:
            raise UserError(f"dataset {self.name!r}: {_one_line(error)}") from None

    def _prepare(self, source_dir: pathlib.Path | None) -> DatasetBuilder:
        """Has the dataset prepared: downloaded, or from the files in a directory."""
        data_dir = self._data_dir(source_dir)
        builder = self._builder(data_dir)
        needed = {url: info.filename for url, info in (builder.url_infos or {}).items()}
        absent = {url: name for url, name in needed.items() if not (source_dir and (source_dir / name).is_file())}
        if builder.MANUAL_DOWNLOAD_INSTRUCTIONS and source_dir is None:
            raise UserError(
                f"dataset {self.name!r} cannot be downloaded; get its files and give --source DIR: "
                f"{_one_line(builder.MANUAL_DOWNLOAD_INSTRUCTIONS)}"
            )
        if absent and not builder.MANUAL_DOWNLOAD_INSTRUCTIONS:
            from components.convert.sources import downloads

            missing = f"missing {', '.join(absent.values())}"
            lacks = f"{source_dir}: holds neither {self.name} prepared nor all its files ({missing}); "
            # It would try for minutes itself, and say nothing meanwhile.
            downloads.require_reachable(absent, lacks if source_dir else "")
        print(f"TensorFlow Datasets prepares {builder.info.full_name} in {data_dir}", flush=True)
        command = [sys.executable, "-m", __name__, self._tfds_name, str(data_dir)]
        child = subprocess.run(
            [*command, *([str(source_dir)] if source_dir else [])],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TF_CPP_MIN_LOG_LEVEL": "3"},
            stderr=None if sys.stderr.isatty() else subprocess.PIPE,
            text=True,
        )
        prepared = self._find(source_dir)
        if child.returncode or not prepared:
            last = (child.stderr or "it says why above").strip().splitlines()[-1]
            raise UserError(f"TensorFlow Datasets cannot prepare {self.name}: {last}; see --source")
        return prepared


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:400]


def _split_paths(prepared: DatasetBuilder) -> dict[str, list[str]]:
    """Returns the paths of the files by split."""
    splits, parts = {}, prepared.info.splits
    for native, part in parts.items():
        split = NAMES.get(native)
        if split in splits:
            raise UserError(f"dataset {_name(prepared)!r} has two splits for {split}: {', '.join(parts)}")
        if split and part.num_examples:
            splits[split] = part
    if "train" not in splits:
        raise UserError(
            f"dataset {_name(prepared)!r} has no split train with examples (it has {', '.join(parts) or 'none'})"
        )
    if others := sorted(set(parts) - {part.name for part in splits.values()}):
        print(f"left out, being none of train, validation and test: {', '.join(others)}")
    return {split: [str(path) for path in splits[split].filepaths] for split in SPLITS if split in splits}


def _name(prepared: DatasetBuilder) -> str:
    return f"{TFDS}{prepared.info.full_name.rpartition('/')[0]}"


def _schema(prepared: DatasetBuilder) -> TableSchema | ImageSchema:
    """Returns the schema of the records, if their features and file format are supported."""
    from components.convert.schema import ImageSchema, TableSchema

    info = prepared.info
    if info.file_format.value != "tfrecord":
        raise UserError(f"{prepared.data_path}: the files' format is {info.file_format.value}; only tfrecord is read")
    features = dict(_flat(info.features))
    label, image = _label(prepared, features), _image(prepared, features)
    common = {"name": _name(prepared), "origin": f"TensorFlow Datasets, {info.full_name}"}
    if image:
        predicted = _predicted(label, features[label])
        classes = {"label": label, **predicted} if "classes" in predicted else {"label": predicted}
        return ImageSchema.model_validate({**common, "image": image, **classes})
    if others := {key: feature for key, feature in features.items() if key != label and not _is_supported(feature)}:
        raise _unsupported(prepared, "has neither an image nor only numbers and texts", others)
    return TableSchema.model_validate({**common, **_table(features, label)})


def _flat(features: Mapping[str, FeatureConnector], prefix: str = "") -> Iterator[tuple[str, FeatureConnector]]:
    """Yields the features with the keys that they have in a record."""
    for key, feature in sorted(features.items()):
        if _kind(feature) == "FeaturesDict":
            yield from _flat(feature, f"{prefix}{key}/")
        else:
            yield prefix + key, feature


def _kind(feature: FeatureConnector) -> str:
    """Returns the name of a feature's class."""
    return type(feature).__name__


def _unsupported(prepared: DatasetBuilder, reason: str, features: Mapping[str, FeatureConnector]) -> UserError:
    listed = ", ".join(f"{key}: {' '.join(repr(feature).split())}" for key, feature in sorted(features.items()))
    return UserError(f"dataset {_name(prepared)!r} {reason} ({listed})")


def _label(prepared: DatasetBuilder, features: Mapping[str, FeatureConnector]) -> str:
    supervised = prepared.info.supervised_keys
    named = supervised[-1] if supervised else None
    if isinstance(named, str) and named in features and _predicted(named, features[named]):
        return named
    labels = [key for key, feature in features.items() if _kind(feature) == "ClassLabel"]
    if len(labels) != 1:
        needed = "one ClassLabel, or supervised_keys that name a number, a short vector of them or of booleans"
        raise _unsupported(prepared, f"does not say what is predicted; needed is {needed}", features)
    return labels[0]


def _image(prepared: DatasetBuilder, features: Mapping[str, FeatureConnector]) -> str | None:
    images = [key for key, feature in features.items() if _kind(feature) == "Image"]
    supervised = prepared.info.supervised_keys
    if len(images) > 1 and supervised and supervised[0] in images:
        images = [supervised[0]]
    if len(images) > 1:
        raise _unsupported(prepared, "has several images; needed is one", features)
    if images and features[images[0]].np_dtype != np.uint8:
        raise _unsupported(prepared, "has images that are not of 8 bits", features)
    return images[0] if images else None


def _is_supported(feature: FeatureConnector) -> bool:
    """Returns whether it is a number, a text, or a short vector of one length."""
    dtype, shape, stored = np.dtype(feature.np_dtype), feature.shape, feature.get_serialized_info()
    return (
        _kind(feature) in _SUPPORTED
        and dtype.kind in _TYPES
        and dtype != np.uint64
        and (stored.shape, stored.np_dtype) == (shape, feature.np_dtype)  # Not compressed.
        and len(shape) <= 1
        and all(size is not None and 1 <= size <= _MAX_ELEMENTS for size in shape)
    )


def _predicted(key: str, feature: FeatureConnector) -> dict[str, Any]:
    """Returns the classes of a label, or by its task the keys of its targets; nothing if it can be no label.

    A vector of booleans says which of several labels apply; any other numbers are predicted as they are.
    """
    if _kind(feature) == "ClassLabel":
        return {"classes": list(feature.names or map(str, range(feature.num_classes)))}
    kind, size = np.dtype(feature.np_dtype).kind, math.prod(feature.shape)
    if not _is_supported(feature) or kind == "O" or (kind == "b" and size == 1):
        return {}
    keys = _keys(key, feature)
    return {MULTI_LABEL if kind == "b" else REGRESSION: dict(zip(keys, keys, strict=True))}


def _keys(key: str, feature: FeatureConnector) -> list[str]:
    """Returns the headers of the values of a feature."""
    return [f"{key}[{i}]" for i in range(feature.shape[0])] if feature.shape else [key]


def _table(features: Mapping[str, FeatureConnector], label: str) -> dict[str, Any]:
    """Returns columns, label and inputs, as a schema file has them, of a table whose features are all supported."""
    predicted = _predicted(label, features[label])
    headers = _keys(label, features[label])
    names = [LABEL] if len(headers) == 1 else [f"{LABEL}_{i}" for i in range(len(headers))]
    kind = _TYPES[np.dtype(features[label].np_dtype).kind]
    columns = {n: {"header": h, "type": kind} for n, h in zip(names, headers, strict=True)}
    if "classes" in predicted:
        target = {"column": LABEL, **predicted}
    else:
        target = {task: dict(zip(keys, names, strict=True)) for task, keys in predicted.items()}
    deep = []
    for key, feature in sorted(features.items()):
        kind = _TYPES[np.dtype(feature.np_dtype).kind]
        base = re.sub(r"\W", "_", key) if key[0].isalpha() else f"c_{key}"
        for i, header in enumerate(_keys(key, feature) if key != label else ()):
            name = f"{base}_{i}" if feature.shape else base
            while name in columns or name == LABEL:
                name += "_"
            columns[name] = {"header": header, "type": kind}
            if classes := getattr(feature, "num_classes", None):
                deep.append({"column": name, "vocabulary": classes})
            else:
                deep.append({"column": name, **(_TEXT_INPUT if kind == "string" else {"numeric": "z_score"})})
    return {"columns": columns, LABEL: target, "deep": deep, "missing": [], "other_columns": "ignore"}


def main(name: str, data_dir: str, manual_dir: str | None = None) -> str | None:
    """Prepares a dataset. Returns what went wrong, in one line."""
    import tensorflow_datasets as tfds

    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    config = tfds.download.DownloadConfig(manual_dir=manual_dir, try_download_gcs=False)
    try:
        tfds.builder(name, data_dir=data_dir).download_and_prepare(download_config=config)
    except Exception as error:  # Of whatever type, by the dataset's own code.
        return f"{type(error).__name__}: {_one_line(error)}"


if __name__ == "__main__":
    lifeline.watch(os.getppid(), lambda: os._exit(1))
    sys.exit(main(*sys.argv[1:]))

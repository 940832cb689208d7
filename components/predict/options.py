"""Options of predictions: which model, and what it is asked about."""

import dataclasses
import os

from common.cli import Flags, as_list, flag
from common.errors import UserError, readable
from common.flags import Kind, at_least, local, place
from common.storage.files import list_files
from common.storage.storage import File

RUN_FILE = "predictions.parquet"  # Name of the file in the directory of a pipeline run.
_OUTPUT = Kind(
    str,
    lambda text: local.holds(text) and text.endswith((".parquet", ".csv", ".jsonl")),
    "a path of this machine that ends in .parquet, .csv or .jsonl",
    "FILE",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VersionOptions(Flags):
    """Arguments that say which version of a registered model it is."""

    registry: str = flag(str, "a directory, or vertex://PROJECT/LOCATION", default="registry")
    name: str = flag(
        str,
        "of the model, and which version: its number or an alias (none: the champion)",
        default="model",
        metavar="NAME[@VERSION]",
    )

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.name.partition("@")[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions(VersionOptions):
    """Arguments that say which model answers. On Vertex AI, the environment names its directory."""

    model_dir: str | None = flag(
        place,
        "a SavedModel, <job-dir>/model, in place of a registered one",
        default=os.environ.get("AIP_STORAGE_URI"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(ModelOptions):
    """Arguments of predictions."""

    source: str | tuple[str, ...] = flag(
        place,
        "files or folders of one kind, here or gs://BUCKET/NAME: CSV (.csv, .tsv), JSON lines "
        "(.jsonl), Parquet, each perhaps with .gz behind; PNG and JPEG images; or the folder of a "
        "converted dataset",
        required=True,
        metavar="PATH",
        several=True,
    )
    output: str = flag(_OUTPUT, "a new file that ends in .parquet, .csv or .jsonl", required=True)
    split: str = flag(("test", "validation", "train"), "of a converted dataset", default="test")
    batch_size: int = flag(
        at_least(1, 1 << 20), "rows that the model is asked about at once", default=1024
    )

    def files(self) -> list[File]:
        """Returns the files of all sources, in the order of the sources.

        A folder stands for all files below it, sorted by path.

        Raises:
          UserError: If a source does not exist, has no files, or cannot be read.
          ConnectionError: If a store does not answer.
        """
        files = []
        for path in as_list(self.source):
            with readable(path):
                inside = list_files(path)
            if not inside:
                raise UserError(f"--source {path}: no such file, and no folder with files")
            files += inside
        return files

    @property
    def errors_file(self) -> str:
        """Path of the file that lists the rows which the model refuses.

        It is that of the output, with `.errors.jsonl` in place of the ending.
        """
        return f"{os.path.splitext(self.output)[0]}.errors.jsonl"

"""Options of predictions: flags of the command, and of the pipeline for its step, as a value."""

import dataclasses
import os

from common.cli import Flags, as_list, flag
from common.errors import UserError, readable, unknown
from common.flags import at_least, local, place
from common.storage.files import list_files, stat_file
from common.storage.storage import File

RUN_FILE = "predictions.parquet"  # In the directory of a run of the pipeline.
FORMATS = {".parquet": "FORMAT parquet", ".csv": "FORMAT csv, HEADER", ".jsonl": "FORMAT json"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    """Arguments of predictions; the model is a directory, or a version in a registry."""

    registry: str = flag(str, "a directory, or vertex://PROJECT/LOCATION", default="registry")
    name: str | None = flag(
        str, "of the model in the registry, and which version: its number or an alias (none: the "
            "champion)",
        metavar="NAME[@VERSION]",
    )  # fmt: skip
    model_dir: str | None = flag(
        str, "a SavedModel, <job-dir>/model, in place of a registered one", metavar="DIR"
    )
    source: str | tuple[str, ...] = flag(
        place,
        "files or folders of one kind, here or gs://BUCKET/NAME: CSV (.csv, .tsv), JSON lines "
        "(.jsonl), Parquet, each perhaps "
        "with .gz behind; PNG and JPEG images; or the folder of a converted dataset",
        required=True,
        metavar="PATH",
        several=True,
    )
    output: str = flag(
        local, "a new file that ends in .parquet, .csv or .jsonl", required=True, metavar="FILE"
    )
    keep: str | tuple[str, ...] | None = flag(
        str,
        "columns of a table that stand beside the answers; without it all",
        metavar="COLUMN",
        several=True,
    )
    split: str = flag(("test", "validation", "train"), "of a converted dataset", default="test")
    batch_size: int = flag(
        at_least(1, 1 << 20), "rows that the model is asked about at once", default=1024
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.name) == bool(self.model_dir):
            raise UserError("give either --name of a model in the --registry, or --model-dir")
        if (suffix := os.path.splitext(self.output)[1]) not in FORMATS:
            raise unknown("ending of --output", suffix, FORMATS)

    def files(self) -> list[File]:
        """Returns the files of all sources, in their order; a source without files is a `UserError`."""
        files = []
        for path in as_list(self.source):
            with readable(path):
                inside = [file] if (file := stat_file(path)) else list_files(path)
            if not inside:
                raise UserError(f"--source {path}: no such file, and no folder with files")
            files += inside
        return files

    @property
    def errors_file(self) -> str:
        """Path of the file of wrong rows."""
        return f"{os.path.splitext(self.output)[0]}.errors.jsonl"

"""Options of predictions: flags of the command, and of the pipeline's step."""

import dataclasses
import os

from common.cli import Flags, as_list, flag
from common.errors import UserError, readable, unknown
from common.flags import at_least, local, place
from common.storage.files import list_files, stat_file
from common.storage.storage import File

RUN_FILE = "predictions.parquet"  # Name of the file in the directory of a pipeline run.
FORMATS = {".parquet": "FORMAT parquet", ".csv": "FORMAT csv, HEADER", ".jsonl": "FORMAT json"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    """Arguments of predictions.

    Raises:
      UserError: If a value is not allowed, if not exactly one of `name` and `model_dir` is given,
        or if the output has an unknown ending.
    """

    registry: str = flag(str, "a directory, or vertex://PROJECT/LOCATION", default="registry")
    name: str | None = flag(
        str,
        "of the model in the registry, and which version: its number or an alias (none: the "
        "champion)",
        metavar="NAME[@VERSION]",
    )
    model_dir: str | None = flag(
        str, "a SavedModel, <job-dir>/model, in place of a registered one", metavar="DIR"
    )
    source: str | tuple[str, ...] = flag(
        place,
        "files or folders of one kind, here or gs://BUCKET/NAME: CSV (.csv, .tsv), JSON lines "
        "(.jsonl), Parquet, each perhaps with .gz behind; PNG and JPEG images; or the folder of a "
        "converted dataset",
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
        """Returns the files of all sources, in the order of the sources.

        A folder stands for all files below it, sorted by path.

        Raises:
          UserError: If a source does not exist, has no files, or cannot be read.
          ConnectionError: If a store does not answer.
        """
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
        """Path of the file that lists the rows which the model refuses.

        It is that of the output, with `.errors.jsonl` in place of the ending.
        """
        return f"{os.path.splitext(self.output)[0]}.errors.jsonl"

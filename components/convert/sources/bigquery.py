"""Tables of BigQuery: read from Parquet files, to which they are exported."""

import dataclasses
import pathlib

from common.errors import UserError
from common.storage.files import sha256_of
from common.storage.storage import File
from components.convert.sources.base import Paths, digest_of
from components.convert.sources.exports import arrow_schema, export, planned
from components.convert.sources.parquet import ParquetReader


@dataclasses.dataclass(frozen=True, kw_only=True)
class BigQueryReader(ParquetReader):
    """Reads a table, or the answer to a query, whose files are exported when they are first listed.

    Attributes:
      export_dir: `gs://` folder of all exports.
    """

    name: str = "bigquery"
    export_dir: str | None = None
    takes: frozenset[str] = frozenset({"schema", "export_dir"})

    def digest(self, source: Paths) -> str:
        """SHA-256 (hexadecimal) over the schema, the question, and when each table that it reads was changed; nothing is exported."""
        return digest_of(
            [
                ("", sha256_of(pathlib.Path(str(self.schema)))),
                (self._asked(source), planned(self._asked(source)).name),
            ]
        )

    def _found(self, source: Paths, *, print_others: bool = False) -> list[tuple[File, dict[str, str]]]:
        if not self.export_dir:
            raise UserError("dataset 'bigquery' needs --export-dir gs://BUCKET/DIR, where the files may be kept")
        schema, plan = self._columns(), planned(self._asked(source))
        if plan.columns:  # a mistake is told before anything is spent
            from components.convert.sources.parquet_table import compare

            compare(arrow_schema(plan.columns), f"BigQuery's {plan.asked}", {}, schema)
        return super()._found(export(plan, self.export_dir))

    def _asked(self, source: Paths) -> str:
        if not isinstance(source, str):
            raise UserError("dataset 'bigquery' needs one --source, a query in quotes or PROJECT.DATASET.TABLE")
        return source

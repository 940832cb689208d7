"""Tables of BigQuery, and answers to queries: BigQuery exports them once as Parquet files in a bucket, which are read.

source = BigQuerySource(schema="trips.yaml", export_dir="gs://bucket/exports")
examples = source.open("SELECT fare, tips FROM `project.dataset.trips`", opening)
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from common.errors import UserError, about
from common.google_cloud import MANAGED_BY, refusals
from common.storage.files import crc32c, list_files, open_file, sha256_of, stat_file, write_text
from common.storage.storage import File
from components.convert.source import Paths, digest_of
from components.convert.sources.tables import ParquetSource

if TYPE_CHECKING:
    import pyarrow as pa

POLL_S = 2.0
_LEAST_BYTES = 10 << 20  # That are billed of each table.
_RECORD = "export.json"  # Beside the files, and written last.
_TABLE = re.compile(r"[a-z0-9][\w.:-]*\.\w+\.[\w-]+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BigQuerySource(ParquetSource):
    """A table, PROJECT.DATASET.TABLE, or the answer to a query, which are exported when their files are first listed.

    Attributes:
      export_dir: `gs://` folder of all exports.
    """

    name: str = "bigquery"
    takes: frozenset[str] = frozenset({"schema", "export_dir"})
    export_dir: str | None = None

    def digest(self, paths: Paths) -> str:
        """Returns the SHA-256 over schema, question, and when each table was changed; nothing is exported."""
        return digest_of([("", sha256_of(self.schema)), (_question(paths), plan_export(_question(paths)).name)])

    def parts(self, paths: Paths, *, print_others: bool = False) -> list[tuple[File, dict[str, str]]]:
        """Returns the exported files."""
        if not self.export_dir:
            raise UserError("dataset 'bigquery' needs --export-dir gs://BUCKET/DIR, where the files may be kept")
        from components.convert.schema import table_schema

        schema, plan = table_schema(self.schema, self.name, delimited=False), plan_export(_question(paths))
        if plan.columns:  # A mistake costs nothing yet.
            from components.convert.sources.staging import check_columns

            with about(f"BigQuery's {plan.question}"):
                check_columns(_arrow_schema(plan.columns), {}, schema)
        return super().parts(export(plan, self.export_dir))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Tables that an export reads, and the most bytes that BigQuery bills for it.

    Attributes:
      question: The table, or the query.
      query: What is to be run; empty of a table, which is copied as it is.
      tables: Those that are read, each with the time of its last change.
      location: Where BigQuery has them.
      num_bytes: Most bytes that are billed; 0 if a table is copied, or if BigQuery cannot tell.
      columns: Of the answer, each as BigQuery's API describes it; empty if it does not.
    """

    question: str
    query: str = ""
    tables: tuple[tuple[str, str], ...]
    location: str
    num_bytes: int = 0
    columns: tuple[Mapping[str, Any], ...]

    @property
    def name(self) -> str:
        """One for each question and each state of the tables."""
        content = json.dumps([self.question, self.tables]).encode()
        return f"bigquery-{hashlib.sha256(content).hexdigest()[:20]}"

    def __str__(self) -> str:
        if not self.query:
            return "BigQuery copies the table to the bucket, without a query"
        return f"the query reads {self.num_bytes / 1e9:,.2f} GB at most"


def plan_export(question: str) -> Plan:
    """Looks up what an export would read: BigQuery checks the query, and runs nothing."""
    from google.cloud import bigquery

    question = question.strip().rstrip(";")
    is_table = _TABLE.fullmatch(question)
    if not is_table and len(question.split()) < 2:
        raise UserError(f"--source {question}: dataset 'bigquery' needs a query, or a table as PROJECT.DATASET.TABLE")
    with _client(question) as client:
        if is_table:
            table = client.get_table(question)
            if table.table_type == "TABLE":
                tables = ((question, table.modified.isoformat()),)
                columns = tuple(column.to_api_repr() for column in table.schema)
                return Plan(question=question, tables=tables, location=table.location, columns=columns)
        query = f"SELECT * FROM `{question}`" if is_table else question
        dry = client.query(query, job_config=bigquery.QueryJobConfig(dry_run=True, use_query_cache=False))
        names = sorted({f"{table.project}.{table.dataset_id}.{table.table_id}" for table in dry.referenced_tables})
        num_bytes = dry.total_bytes_processed
        return Plan(
            question=question,
            query=query,
            tables=tuple((name, client.get_table(name).modified.isoformat()) for name in names),
            location=dry.location,
            num_bytes=num_bytes + _LEAST_BYTES * len(names) if num_bytes else 0,
            columns=tuple(column.to_api_repr() for column in dry.schema or ()),
        )


def export(plan: Plan, directory: str) -> str:
    """Has BigQuery write Parquet files to a new folder, unless that of the same question and tables is there.

    Whoever was interrupted, or is one of several, waits for the job that was begun.

    Args:
      plan: What is exported.
      directory: `gs://` folder of all exports.

    Returns:
      The folder of the files.
    """
    with _client(plan.question) as client:
        for attempt in itertools.count():
            folder = f"{directory.rstrip('/')}/{plan.name}/{attempt}"
            job_id = f"{plan.name}-{crc32c(folder.encode())}"
            if record := stat_file(f"{folder}/{_RECORD}"):
                if json.loads(open_file(record).read())["files"] == _list_parquet(folder):
                    return folder
                continue  # Files are missing since.
            print(f"{plan}; job {job_id} writes to {folder}", flush=True)
            job, is_ours = _begin(client, plan, folder, job_id)
            while job.state != "DONE":
                time.sleep(POLL_S)
                job.reload()
            if job.error_result and is_ours:
                raise UserError(f"BigQuery cannot export {plan.question}: {job.error_result['message']}")
            if not job.error_result and (files := _list_parquet(folder)):
                content = dataclasses.asdict(plan) | {"job": job_id, "files": files}
                write_text(f"{folder}/{_RECORD}", json.dumps(content, indent=1), if_version="")
                return folder
            if is_ours:
                raise UserError(f"BigQuery has written nothing to {folder}")


def _begin(client: Any, plan: Plan, folder: str, job_id: str) -> tuple[Any, bool]:
    """Returns the job of this id, and whether it was begun now."""
    from google.api_core.exceptions import Conflict
    from google.cloud import bigquery

    labels, uri = {"labels": dict([MANAGED_BY])}, f"{folder}/*.parquet"
    job = {"job_id": job_id, "location": plan.location}
    try:
        if plan.query:
            config = bigquery.QueryJobConfig(maximum_bytes_billed=plan.num_bytes or None, **labels)
            options = f"uri = '{uri}', format = 'PARQUET', compression = 'SNAPPY'"
            return client.query(f"EXPORT DATA OPTIONS ({options}) AS\n{plan.query}", job_config=config, **job), True
        config = bigquery.ExtractJobConfig(destination_format="PARQUET", compression="SNAPPY", **labels)
        return client.extract_table(plan.question, uri, job_config=config, **job), True
    except Conflict:
        return client.get_job(**job), False


def _list_parquet(folder: str) -> list[list[str]]:
    """Returns paths and versions of the Parquet files in a folder."""
    return [[file.path, file.version] for file in list_files(folder) if file.path.endswith(".parquet")]


def _arrow_schema(columns: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Returns the Arrow types of the files that BigQuery will write, given its columns; null where it has a choice."""
    import pyarrow as pa

    types = {
        **{"INTEGER": pa.int64(), "FLOAT": pa.float64(), "BOOLEAN": pa.bool_(), "STRING": pa.string()},
        **{"NUMERIC": pa.decimal128(38, 9), "BIGNUMERIC": pa.decimal256(76, 38), "BYTES": pa.binary()},
        **{"DATE": pa.date32(), "TIME": pa.time64("us"), "TIMESTAMP": pa.timestamp("us", "UTC")},
        **dict.fromkeys(("RECORD", "STRUCT"), pa.struct([])),
    }
    fields = []
    for column in columns:
        kind = types.get(column["type"], pa.null())
        fields.append((column["name"], pa.list_(kind) if column.get("mode") == "REPEATED" else kind))
    return pa.schema(fields)


def _question(paths: Paths) -> str:
    if not isinstance(paths, str):
        raise UserError("dataset 'bigquery' needs one --source, a query in quotes or PROJECT.DATASET.TABLE")
    return paths


@contextlib.contextmanager
def _client(question: str) -> Iterator[Any]:
    with refusals(f"BigQuery refuses {question}"):
        from google.cloud import bigquery  # Takes 1 s.

        # The machines of a job on Vertex AI are in a project of Google's; it says which one the job is of.
        yield bigquery.Client(project=os.environ.get("CLOUD_ML_PROJECT_ID"))

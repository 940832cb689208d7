"""Tables of BigQuery and results of queries, which are exported once as Parquet files to a bucket.

    source = BigQuerySource(schema="trips.yaml", export_dir="gs://bucket/exports")
    examples = source.open("SELECT fare, tips FROM `project.dataset.trips`", opening)

Another export is made only if the query, a table that it reads or the exported files have changed.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any

from common.errors import UserError, about
from common.google_cloud import MANAGED_BY, refusals
from common.storage.files import crc32c, list_files, parsed_json, sha256_of, write_text
from common.storage.storage import File
from components.convert.source import Paths, digest_of
from components.convert.sources.tables import ParquetSource

POLL_S = 2.0
_LEAST_BYTES = 10 << 20  # Least number of bytes that BigQuery bills for each table of a query.
_RECORD = "export.json"  # Lies beside the exported files, and is written last.
_TABLE = re.compile(r"[a-z0-9][\w.:-]*\.\w+\.[\w-]+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BigQuerySource(ParquetSource):
    """A table, PROJECT.DATASET.TABLE, or the result of a query.

    It is exported when its files are first listed.

    Attributes:
      export_dir: `gs://` folder of all exports.
    """

    name: str = "bigquery"
    takes: frozenset[str] = frozenset({"schema", "export_dir"})
    export_dir: str | None = None

    def digest(self, paths: Paths) -> str:
        """Returns a digest of the source that changes when the source does; nothing is exported.

        Args:
          paths: The table, or the query.

        Returns:
          SHA-256 (hexadecimal) over the schema, the table or query, and the times of the last
          changes of all tables that are read.

        Raises:
          UserError: If BigQuery refuses the table or query.
          ConnectionError: If BigQuery does not answer.
        """
        return digest_of([("schema", sha256_of(self.schema)), ("export", plan_export(paths).name)])

    def parts(
        self, paths: Paths, *, print_others: bool = False
    ) -> list[tuple[File, dict[str, str | None]]]:
        """Exports the table or query, unless that has been done, and returns the exported files.

        Args:
          paths: The table, or the query.
          print_others: Has no effect.

        Returns:
          For each file, the file and an empty mapping.

        Raises:
          UserError: If there is no `export_dir` or schema, a column is not what the schema says, or
            BigQuery refuses.
          ConnectionError: If BigQuery or the store does not answer.
        """
        if not self.export_dir:
            raise UserError(
                "dataset 'bigquery' needs --export-dir gs://BUCKET/DIR, where the files may be kept"
            )
        from components.convert.schema import table_schema
        from components.convert.sources.text_rows import check_names

        schema = table_schema(self.schema, self.name, delimited=False)
        plan = plan_export(paths)
        if plan.columns:  # An error about columns is better raised before the export is paid for.
            with about(f"BigQuery's {plan.question}"):
                check_names(plan.columns, schema)
        return super().parts(export(plan, self.export_dir))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of an export: what it reads, and what BigQuery bills for it.

    Attributes:
      question: The table, or the query.
      query: SQL to run; empty for a table, which is copied as it is.
      tables: Tables that are read, each with the time of its last change.
      location: Location of the tables in BigQuery.
      num_bytes: Most bytes that are billed; 0 if a table is copied, or if BigQuery cannot tell.
      columns: Names of the columns; empty if BigQuery does not say.
    """

    question: str
    query: str = ""
    tables: list[str]
    location: str
    num_bytes: int = 0
    columns: list[str]

    @property
    def name(self) -> str:
        """Name of the export, which depends on `question` and `tables` only."""
        content = json.dumps([self.question, self.tables]).encode()
        return f"bigquery-{hashlib.sha256(content).hexdigest()[:20]}"


def plan_export(paths: Paths) -> Plan:
    """Plans an export: BigQuery checks the query, and runs nothing.

    Args:
      paths: One query, or one table as PROJECT.DATASET.TABLE.

    Raises:
      UserError: If that is neither a query nor a table, or BigQuery refuses it.
      ConnectionError: If BigQuery does not answer.
    """
    from google.cloud import bigquery

    if not isinstance(paths, str):
        raise UserError(
            "dataset 'bigquery' needs one --source, a query in quotes or PROJECT.DATASET.TABLE"
        )
    question = paths.strip().rstrip(";")
    is_table = _TABLE.fullmatch(question)
    if not is_table and len(question.split()) < 2:
        raise UserError(
            f"--source {question}: dataset 'bigquery' needs a query, or a table as "
            "PROJECT.DATASET.TABLE"
        )
    with _client(question) as client:
        query, names, num_bytes = "", [question], 0
        answer = client.get_table(question) if is_table else None
        if answer is None or answer.table_type != "TABLE":  # A view is queried.
            query = f"SELECT * FROM `{question}`" if is_table else question
            answer = client.query(
                query, job_config=bigquery.QueryJobConfig(dry_run=True, use_query_cache=False)
            )
            names = sorted({str(table) for table in answer.referenced_tables})
            if answer.total_bytes_processed:
                num_bytes = answer.total_bytes_processed + _LEAST_BYTES * len(names)
        return Plan(
            question=question,
            query=query,
            tables=[f"{name} of {client.get_table(name).modified.isoformat()}" for name in names],
            location=answer.location,
            num_bytes=num_bytes,
            columns=[column.name for column in answer.schema or ()],
        )


def export(plan: Plan, directory: str) -> str:
    """Lets BigQuery write Parquet files to a folder, unless an export of the same plan is there.

    If a job for this export was begun already, by an interrupted call or by another process, it
    waits for that job.

    Args:
      plan: What to export.
      directory: `gs://` folder of all exports.

    Returns:
      The `gs://` folder of the files.

    Raises:
      UserError: If BigQuery refuses the job, or a job that this call began fails or writes nothing.
        The next call begins another one.
      ConnectionError: If BigQuery or the store does not answer.
    """
    with _client(plan.question) as client:
        # The id of a failed job cannot be used again, so each attempt has its own folder and id.
        for attempt in itertools.count():
            folder = f"{directory.rstrip('/')}/{plan.name}/{attempt}"
            with parsed_json(f"{folder}/{_RECORD}") as record:
                if record and record["files"] == _list_parquet(folder):
                    return folder
            if record:  # Files have been changed or deleted since, so another folder is used.
                continue
            job_id = f"{plan.name}-{crc32c(folder.encode())}"
            bound = (
                f"the query reads {plan.num_bytes / 1e9:,.2f} GB at most; "
                if plan.num_bytes
                else ""
            )
            print(f"{bound}job {job_id} writes to {folder}", flush=True)
            job, is_ours = _begin(client, plan, folder, job_id)
            while job.state != "DONE":
                time.sleep(POLL_S)
                job.reload()
            files = _list_parquet(folder)
            if files and not job.error_result:
                content = dataclasses.asdict(plan) | {"job": job_id, "files": files}
                write_text(f"{folder}/{_RECORD}", json.dumps(content, indent=1), if_version="")
                return folder
            if is_ours:
                error = job.error_result or {"message": f"it has written nothing to {folder}"}
                raise UserError(f"BigQuery cannot export {plan.question}: {error['message']}")
    raise AssertionError  # The loop has no other end.


def _begin(client: Any, plan: Plan, folder: str, job_id: str) -> tuple[Any, bool]:
    """Begins the job of an export in BigQuery, unless there is one with this id.

    Other errors of Google's client than that conflict are raised unchanged.

    Args:
      client: Client of BigQuery.
      plan: What to export.
      folder: `gs://` folder of the exported files.
      job_id: Id of the job.

    Returns:
      The job, new or existing, and whether this call has begun it.
    """
    from google.api_core.exceptions import Conflict
    from google.cloud import bigquery

    uri = f"{folder}/*.parquet"
    job = {"job_id": job_id, "location": plan.location}
    labels = dict([MANAGED_BY])
    try:
        if not plan.query:
            return client.extract_table(
                plan.question,
                uri,
                job_config=bigquery.ExtractJobConfig(
                    destination_format="PARQUET", compression="SNAPPY", labels=labels
                ),
                **job,
            ), True
        config = bigquery.QueryJobConfig(maximum_bytes_billed=plan.num_bytes or None, labels=labels)
        options = f"uri = '{uri}', format = 'PARQUET', compression = 'SNAPPY'"
        return client.query(
            f"EXPORT DATA OPTIONS ({options}) AS\n{plan.query}", job_config=config, **job
        ), True
    except Conflict:
        return client.get_job(**job), False


def _list_parquet(folder: str) -> list[list[str]]:
    """Returns [path, version] of each file below a folder that ends in `.parquet`, by path."""
    return [
        [file.path, file.version] for file in list_files(folder) if file.path.endswith(".parquet")
    ]


@contextlib.contextmanager
def _client(question: str) -> Iterator[Any]:
    with refusals(f"BigQuery refuses {question}"):
        from google.cloud import bigquery  # The import takes 1 s.

        # The machines of a job on Vertex AI belong to a project of Google's. This variable has the
        # project of the job.
        yield bigquery.Client(project=os.environ.get("CLOUD_ML_PROJECT_ID"))

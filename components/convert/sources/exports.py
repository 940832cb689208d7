"""Tables of BigQuery, and answers to queries, as Parquet files in a bucket: exported once, by BigQuery itself.

planned("SELECT fare, tips FROM `project.dataset.trips`").told      # what that would read; nothing has run
export(planned("project.dataset.trips"), "gs://bucket/exports")     # the folder of the files
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common.errors import UserError
from common.google_cloud import MANAGED_BY, refusals
from common.storage.files import crc32c, list_files, open_file, stat_file, write_text

_LEAST_BYTES = 10 << 20  # that are billed of each table
_RECORD = "export.json"  # beside the files, and written last
_POLL_S = 2.0
_TABLE = re.compile(r"[a-z0-9][\w.:-]*\.\w+\.[\w-]+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What an export is of, and what it takes.

    Attributes:
      asked: The table, or the query.
      query: What is to be asked; empty of a table, which is copied as it is.
      tables: Those that are read, each with the time of its last change.
      location: Where BigQuery has them.
      num_bytes: That are billed at most; 0 if a table is copied, or if BigQuery cannot tell.
      columns: Of the answer, each as BigQuery's API describes it; empty if it does not.
    """

    asked: str
    query: str
    tables: tuple[tuple[str, str], ...]
    location: str
    num_bytes: int
    columns: tuple[Mapping[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """One for each question and each state of the tables."""
        content = json.dumps([self.asked, self.tables]).encode()
        return f"bigquery-{hashlib.sha256(content).hexdigest()[:20]}"

    @property
    def told(self) -> str:
        """What it reads, in words."""
        if not self.query:
            return "BigQuery copies the table to the bucket, without a query"
        return f"the query reads {self.num_bytes / 1e9:,.2f} GB at most"


def planned(asked: str) -> Plan:
    """Looks up what an export would read: BigQuery checks the query, and runs nothing."""
    from google.cloud import bigquery

    asked = asked.strip().rstrip(";")
    if not _TABLE.fullmatch(asked) and len(asked.split()) < 2:
        raise UserError(f"--source {asked}: dataset 'bigquery' needs a query, or a table as PROJECT.DATASET.TABLE")
    with _client(asked) as client:
        if _TABLE.fullmatch(asked):
            table = client.get_table(asked)
            if table.table_type == "TABLE":
                tables = ((asked, table.modified.isoformat()),)
                columns = tuple(column.to_api_repr() for column in table.schema)
                return Plan(asked=asked, query="", tables=tables, location=table.location, num_bytes=0, columns=columns)
        query = f"SELECT * FROM `{asked}`" if _TABLE.fullmatch(asked) else asked
        dry = client.query(query, job_config=bigquery.QueryJobConfig(dry_run=True, use_query_cache=False))
        names = sorted({f"{table.project}.{table.dataset_id}.{table.table_id}" for table in dry.referenced_tables})
        tables = tuple((name, client.get_table(name).modified.isoformat()) for name in names)
        due = dry.total_bytes_processed
        num_bytes = due and due + _LEAST_BYTES * len(tables)
        known = {"tables": tables, "columns": tuple(column.to_api_repr() for column in dry.schema or ())}
        return Plan(asked=asked, query=query, location=dry.location, num_bytes=num_bytes, **known)


def arrow_schema(columns: Sequence[Mapping[str, Any]]) -> Any:
    """The types of columns in the files that BigQuery writes, as Arrow has them; null of those that may be several."""
    import pyarrow as pa  # slow

    types = {
        **{"INTEGER": pa.int64(), "FLOAT": pa.float64(), "BOOLEAN": pa.bool_(), "STRING": pa.string()},
        **{"NUMERIC": pa.decimal128(38, 9), "BIGNUMERIC": pa.decimal256(76, 38), "BYTES": pa.binary()},
        **{"DATE": pa.date32(), "TIME": pa.time64("us"), "TIMESTAMP": pa.timestamp("us", "UTC")},
    }
    fields = []
    for column in columns:
        kind = column["type"]
        found = pa.struct([]) if kind in ("RECORD", "STRUCT") else types.get(kind, pa.null())
        fields.append((column["name"], pa.list_(found) if column.get("mode") == "REPEATED" else found))
    return pa.schema(fields)


def export(plan: Plan, place: str) -> str:
    """Has BigQuery write Parquet files to a new folder, unless that of the same question and tables is there.

    Whoever was interrupted, or is one of several, waits for the job that was begun.

    Args:
      plan: What was planned of a table, PROJECT.DATASET.TABLE, or a query in GoogleSQL.
      place: `gs://` folder of all exports.

    Returns:
      The folder of the files.
    """
    with _client(plan.asked) as client:
        for attempt in itertools.count():
            folder = f"{place.rstrip('/')}/{plan.name}/{attempt}"
            job_id = f"{plan.name}-{crc32c(folder.encode())}"
            if record := stat_file(f"{folder}/{_RECORD}"):
                if json.loads(open_file(record).read())["files"] == _files(folder):
                    return folder
                continue  # files are missing since
            print(f"{plan.told}; job {job_id} writes to {folder}", flush=True)
            job, ours = _begun(client, plan, folder, job_id)
            while job.state != "DONE":
                time.sleep(_POLL_S)
                job.reload()
            if job.error_result and ours:
                raise UserError(f"BigQuery cannot export {plan.asked}: {job.error_result['message']}")
            if not job.error_result and (files := _files(folder)):
                content = dataclasses.asdict(plan) | {"job": job_id, "files": files}
                write_text(f"{folder}/{_RECORD}", json.dumps(content, indent=1), if_version="")
                return folder
            if ours:
                raise UserError(f"BigQuery has written nothing to {folder}")


def _begun(client: Any, plan: Plan, folder: str, job_id: str) -> tuple[Any, bool]:
    """The job of this id, and whether it was begun now."""
    from google.api_core.exceptions import Conflict
    from google.cloud import bigquery

    common, uri = {"labels": dict([MANAGED_BY])}, f"{folder}/*.parquet"
    where = {"job_id": job_id, "location": plan.location}
    try:
        if plan.query:
            how = bigquery.QueryJobConfig(maximum_bytes_billed=plan.num_bytes or None, **common)
            options = f"uri = '{uri}', format = 'PARQUET', compression = 'SNAPPY'"
            job = client.query(f"EXPORT DATA OPTIONS ({options}) AS\n{plan.query}", job_config=how, **where)
        else:
            how = bigquery.ExtractJobConfig(destination_format="PARQUET", compression="SNAPPY", **common)
            job = client.extract_table(plan.asked, uri, job_config=how, **where)
    except Conflict:
        return client.get_job(**where), False
    return job, True


def _files(folder: str) -> list[list[str]]:
    """The names and versions of what was written."""
    return [[file.path, file.version] for file in list_files(folder) if file.path.endswith(".parquet")]


@contextlib.contextmanager
def _client(asked: str) -> Iterator[Any]:
    with refusals(f"BigQuery refuses {asked}"):
        from google.cloud import bigquery  # 1 s

        # The machines of a job on Vertex AI are in a project of Google's; it says which one the job is of.
        yield bigquery.Client(project=os.environ.get("CLOUD_ML_PROJECT_ID"))

"""The requests of BigQuery's API (v2) that an export makes: `tables.get`, and of jobs two kinds.

Tables are Parquet files, `ROOT/PROJECT.DATASET.TABLE.parquet`. Nothing here understands SQL: a
query's answer is the first table that it names in backquotes. A job runs until it has been asked
for once.
"""

import json
import re

import pyarrow.parquet as pq
from google.api_core import exceptions

from tests.cloud.front import Answer

_TYPES = {"int64": "INTEGER", "double": "FLOAT", "string": "STRING"}
_EXPORT = r"^EXPORT DATA OPTIONS \(uri = '([^']+)', format = 'PARQUET'"


class BigQuery:
    """Answers requests over tables, and exports them to objects."""

    def __init__(self, root, objects):
        self.inserted = []  # what was asked for and not only tried
        self.failure = ""  # with which the next job ends
        self._root, self._objects, self._jobs = root, objects, {}

    def answer(self, request):
        """The answer to a request."""
        match request.method, *request.path.removeprefix("/bigquery/v2/projects/").split("/"):
            case "GET", project, "datasets", dataset, "tables", table:
                path = self._path(f"{project}.{dataset}.{table}")
                return Answer(200, {
                    "tableReference": _reference(f"{project}.{dataset}.{table}"),
                    "type": "VIEW" if table.startswith("view") else "TABLE",
                    "location": "US",
                    "schema": _schema(path),
                    "lastModifiedTime": str(path.stat().st_mtime_ns // 10**6),
                })  # fmt: skip
            case "POST", project, "jobs":
                return Answer(200, self._insert(project, json.loads(request.body)))
            case "GET", _, "jobs", id if id in self._jobs and request.query["location"] == "US":
                job = self._jobs[id]
                self._jobs[id] = job | {"status": job["status"] | {"state": "DONE"}}
                return Answer(200, job)
        raise exceptions.NotFound(f"Not found: {request.path}")

    def _insert(self, project, body):
        configuration = body["configuration"]
        reference = {"projectId": project, "location": "US", **body.get("jobReference", {})}
        query, limit = configuration.get("query"), None
        if query:
            if query["useLegacySql"] or "broken" in query["query"]:
                raise exceptions.BadRequest("Syntax error: Unexpected identifier")
            tables = re.findall(r"`([^`]+)`", query["query"])
            target = re.search(_EXPORT, query["query"])
            uri, limit = target[1] if target else "", query.get("maximumBytesBilled")
        else:
            extract = configuration["extract"]
            tables, [uri] = [".".join(extract["sourceTable"].values())], extract["destinationUris"]
        paths = [self._path(table) for table in tables]
        sizes = [path.stat().st_size for path in paths]
        due = sum(max(size, 10 << 20) for size in sizes)
        if limit and due > int(limit):
            raise exceptions.BadRequest(
                f"Query exceeded limit for bytes billed: {limit}. {due} or higher required."
            )
        about = {
            "referencedTables": [_reference(table) for table in tables],
            "totalBytesProcessed": str(sum(sizes)),
            "schema": _schema(paths[0]),
        }
        job = {"configuration": configuration, "jobReference": reference}
        job |= {"statistics": {"query": about}, "status": {"state": "RUNNING"}}
        if configuration.get("dryRun"):
            return job | {"status": {"state": "DONE"}}
        if reference["jobId"] in self._jobs:
            raise exceptions.Conflict(f"Already Exists: Job {project}:US.{reference['jobId']}")
        self.inserted.append(body)
        if self.failure:
            error = {"reason": "backendError", "message": self.failure}
            job["status"]["errorResult"], self.failure = error, ""
        else:
            bucket, _, name = uri.removeprefix("gs://").partition("/")
            self._objects.put(bucket, name.replace("*", "0" * 12), paths[0].read_bytes(), {})
        self._jobs[reference["jobId"]] = job
        return job

    def _path(self, table):
        path = self._root / f"{table}.parquet"
        if not path.exists():
            raise exceptions.NotFound(f"Not found: Table {table}")
        return path


def _reference(table):
    return dict(zip(("projectId", "datasetId", "tableId"), table.split("."), strict=True))


def _schema(path):
    fields = pq.read_schema(path)
    return {"fields": [{"name": each.name, "type": _TYPES[str(each.type)]} for each in fields]}

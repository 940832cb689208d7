"""The requests of BigQuery's API (v2) that an export makes: `tables.get`, and `jobs.insert` and `jobs.get` of two kinds of jobs.

Tables are Parquet files, `ROOT/PROJECT.DATASET.TABLE.parquet`. Nothing here understands SQL: a
query's answer is the first table that it names in backquotes. A job runs until it has been asked
for once.
"""

import json
import pathlib
import re
from typing import Any

import pyarrow.parquet as pq
from google.api_core import exceptions

from tests.cloud.front import Answer, Request
from tests.cloud.objects import Objects

_TYPES = {"int64": "INTEGER", "double": "FLOAT", "string": "STRING"}


class BigQuery:
    """Answers requests over tables, and exports them to objects."""

    def __init__(self, root: pathlib.Path, objects: Objects) -> None:
        self.inserted: list[dict[str, Any]] = []  # what was asked for and not only tried
        self.failure = ""  # with which the next job ends
        self._root, self._objects, self._jobs = root, objects, {}

    def answer(self, request: Request) -> Answer:
        """The answer to a request."""
        match request.method, *request.path.removeprefix("/bigquery/v2/projects/").split("/"):
            case "GET", project, "datasets", dataset, "tables", table:
                path = self._path(f"{project}.{dataset}.{table}")
                about = {
                    "tableReference": {"projectId": project, "datasetId": dataset, "tableId": table}
                }
                about |= {"type": "VIEW" if table.startswith("view") else "TABLE", "location": "US"}
                about["schema"] = self._schema(path)
                return Answer(
                    200, {**about, "lastModifiedTime": str(path.stat().st_mtime_ns // 10**6)}
                )
            case "POST", project, "jobs":
                return Answer(200, self._insert(project, json.loads(request.body)))
            case "GET", _, "jobs", job_id if (
                job_id in self._jobs and request.query["location"] == "US"
            ):
                job = self._jobs[job_id]
                self._jobs[job_id] = job | {"status": job["status"] | {"state": "DONE"}}
                return Answer(200, job)
        raise exceptions.NotFound(f"Not found: {request.path}")

    def _insert(self, project: str, body: dict[str, Any]) -> dict[str, Any]:
        configuration, reference = (
            body["configuration"],
            {"projectId": project, **body.get("jobReference", {})},
        )
        if "query" in configuration:
            query = configuration["query"]
            if query["useLegacySql"] or "broken" in query["query"]:
                raise exceptions.BadRequest("Syntax error: Unexpected identifier")
            tables = re.findall(r"`([^`]+)`", query["query"])
            target = re.search(
                r"^EXPORT DATA OPTIONS \(uri = '([^']+)', format = 'PARQUET'", query["query"]
            )
            [uri] = target.groups() if target else [""]
            most = query.get("maximumBytesBilled")
        else:
            extract, most = configuration["extract"], None
            tables, uri = [".".join(extract["sourceTable"].values())], *extract["destinationUris"]
        data = [self._path(table).read_bytes() for table in tables]
        due = sum(max(len(content), 10 << 20) for content in data)
        if most and due > int(most):
            raise exceptions.BadRequest(
                f"Query exceeded limit for bytes billed: {most}. {due} or higher required."
            )
        names = [
            dict(zip(("projectId", "datasetId", "tableId"), table.split("."), strict=True))
            for table in tables
        ]
        about = {
            "query": {"referencedTables": names, "totalBytesProcessed": str(sum(map(len, data)))}
        }
        about["query"]["schema"] = self._schema(self._path(tables[0]))
        job = {
            "configuration": configuration,
            "jobReference": {"location": "US", **reference},
            "statistics": about,
        }
        if configuration.get("dryRun"):
            return job | {"status": {"state": "DONE"}}
        if reference["jobId"] in self._jobs:
            raise exceptions.Conflict(f"Already Exists: Job {project}:US.{reference['jobId']}")
        self.inserted.append(body)
        failure, self.failure = self.failure, ""
        if failure:
            job["status"] = {
                "state": "RUNNING",
                "errorResult": {"reason": "backendError", "message": failure},
            }
        else:
            bucket, _, name = uri.removeprefix("gs://").partition("/")
            self._objects.put(bucket, name.replace("*", "000000000000"), data[0], {})
            job["status"] = {"state": "RUNNING"}
        self._jobs[reference["jobId"]] = job
        return job

    def _schema(self, path: pathlib.Path) -> dict[str, Any]:
        return {
            "fields": [
                {"name": field.name, "type": _TYPES[str(field.type)]}
                for field in pq.read_schema(path)
            ]
        }

    def _path(self, table: str) -> pathlib.Path:
        path = self._root / f"{table}.parquet"
        if not path.exists():
            raise exceptions.NotFound(f"Not found: Table {table}")
        return path

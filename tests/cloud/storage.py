"""The requests of Cloud Storage's JSON and XML API that TensorFlow's gs:// file system and google-cloud-storage make.

After the JSON API's reference ("Objects", "Resumable uploads", "Multipart uploads") and
TensorFlow's `tsl/platform/cloud/gcs_file_system.cc`, which reads by the XML API and writes by
resumable uploads only.
"""

import json
import re
import urllib.parse
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from google.api_core import exceptions

from tests.cloud.front import Answer, Request
from tests.cloud.iam import Iam
from tests.cloud.objects import Objects

_REWRITTEN = 1 << 20  # bytes by one call, from one bucket into another
_CHUNK = 256 * 1024  # each part of a resumable upload but the last is a multiple of it


class Storage:
    """Answers requests over objects."""

    def __init__(self, objects: Objects, iam: Iam | None = None) -> None:
        self._objects, self._iam = objects, iam or Iam()
        self._begun: dict[str, bytes] = {}  # what there is of resumable uploads
        part = r"/([^/]+)"
        # With the permission for the bucket, or for the object, that the path names first.
        self._routes: list[tuple[str, str, Callable[..., Answer], str]] = [
            ("POST|PUT", rf"/upload/storage/v1/b{part}/o", self._upload, ""),
            ("GET", rf"/storage/v1/b{part}(?:/storageLayout)?", self._bucket, "buckets.get"),
            ("GET", rf"/storage/v1/b{part}/iam/testPermissions", self._permissions, ""),
            ("GET", rf"/storage/v1/b{part}/o", self._list, "objects.list"),
            (
                "POST",
                rf"/storage/v1/b{part}/o{part}/(?:rewriteTo|copyTo)/b{part}/o{part}",
                self._copy,
                "objects.get",
            ),
            ("DELETE", rf"/storage/v1/b{part}/o{part}", self._delete, "objects.delete"),
            ("GET", rf"/(?:download/)?storage/v1/b{part}/o{part}", self._get, "objects.get"),
            ("GET", rf"{part}/(.+)", self._media, "objects.get"),
        ]

    def answer(self, request: Request) -> Answer:
        """The answer to a request."""
        for methods, pattern, handler, permission in self._routes:
            match = re.fullmatch(pattern, request.path)
            if match and request.method in methods.split("|"):
                parts = [urllib.parse.unquote(part) for part in match.groups()]
                if permission:
                    self._require(request, permission, *parts[:2])
                return handler(request, *parts)
        raise exceptions.MethodNotImplemented(f"not in this store: {request.method} {request.path}")

    def _bucket(self, request: Request, bucket: str) -> Answer:
        self._objects.path(bucket, "")
        about = {
            "kind": "storage#bucket",
            "name": bucket,
            "location": "US-CENTRAL1",
            "locationType": "region",
        }
        return Answer(200, {**about, "projectNumber": "123456789"})

    def _permissions(self, request: Request, bucket: str) -> Answer:
        """All that there are for objects, as far as the caller has them for the bucket."""
        permissions = [f"storage.objects.{verb}" for verb in ("get", "list", "create", "delete")]
        return Answer(
            200,
            {
                "permissions": [
                    p for p in permissions if self._iam.allows(request, p, f"gs://{bucket}")
                ]
            },
        )

    def _list(self, request: Request, bucket: str) -> Answer:
        return Answer(200, self._objects.page(bucket, request.query))

    def _get(self, request: Request, bucket: str, name: str) -> Answer:
        if request.query.get("alt") == "media":
            return self._media(request, bucket, name)
        return Answer(200, self._objects.get(bucket, name, request.query))

    def _delete(self, request: Request, bucket: str, name: str) -> Answer:
        self._objects.delete(bucket, name, request.query)
        return Answer(204)

    def _copy(
        self, request: Request, bucket: str, name: str, to_bucket: str, to_name: str
    ) -> Answer:
        data, copied = (
            self._objects.read(bucket, name, {})[1],
            int(request.query.get("rewriteToken", 0)) + _REWRITTEN,
        )
        if bucket != to_bucket and copied < len(data):
            sizes = {"totalBytesRewritten": str(copied), "objectSize": str(len(data))}
            return Answer(200, {"done": False, "rewriteToken": str(copied), **sizes})
        made = self._put(request, to_bucket, to_name, data, request.query)
        sizes = {"totalBytesRewritten": made["size"], "objectSize": made["size"]}
        return Answer(
            200, {"kind": "storage#rewriteResponse", "done": True, "resource": made, **sizes}
        )

    def _media(self, request: Request, bucket: str, name: str) -> Answer:
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range") or "")
        start, stop = (
            (int(match[1]), int(match[2]) + 1 if match[2] else None) if match else (0, None)
        )
        known, data = self._objects.read(bucket, name, request.query, start, stop)
        told = {
            "x-goog-hash": f"crc32c={known['crc32c']}",
            "x-goog-generation": known["generation"],
        }
        if not match:
            return Answer(200, data, told)
        if not data:
            return Answer(416, b"", told)
        return Answer(
            206,
            data,
            told | {"Content-Range": f"bytes {start}-{start + len(data) - 1}/{known['size']}"},
        )

    def _upload(self, request: Request, bucket: str) -> Answer:
        query = request.query
        if "upload_id" in query:
            return self._continue(request, bucket)
        if query.get("uploadType") == "multipart":
            boundary = re.search(r'boundary="?([^";]+)', request.headers["Content-Type"])[1]
            _, about, data, _ = request.body.split(b"--" + boundary.encode(), 3)
            about, data = (part.split(b"\r\n\r\n", 1)[1] for part in (about, data))
            about = json.loads(about)
            query = {**query, "crc32c": about.get("crc32c", "")}
            return Answer(200, self._put(request, bucket, about["name"], data[:-2], query))
        if query.get("uploadType") != "resumable":
            return Answer(200, self._put(request, bucket, query["name"], request.body, query))
        about = json.loads(request.body or "{}")
        name = query.get("name") or about["name"]
        identity = uuid.uuid4().hex
        self._begun[identity] = b""
        again = urllib.parse.urlencode(
            {**query, "name": name, "crc32c": about.get("crc32c", ""), "upload_id": identity}
        )
        scheme = "http" if request.host.startswith("127.") else "https"
        return Answer(200, b"", {"Location": f"{scheme}://{request.host}{request.path}?{again}"})

    def _continue(self, request: Request, bucket: str) -> Answer:
        """Takes a part, `bytes 0-9/*`, or tells how much is there, `bytes */10`."""
        span = (
            request.headers.get("Content-Range")
            or f"bytes 0-{len(request.body) - 1}/{len(request.body)}"
        )
        query, data = request.query, self._begun[request.query["upload_id"]]
        first, total = re.fullmatch(r"bytes (\*|\d+)(?:-\d+)?/(\*|\d+)", span).groups()
        if first != "*":
            if int(first) > len(data):
                raise exceptions.ServiceUnavailable("a part is missing before this one")
            data = self._begun[query["upload_id"]] = data[: int(first)] + request.body
        if total != "*" and len(data) == int(total):
            return Answer(200, self._put(request, bucket, query["name"], data, query))
        if len(data) % _CHUNK:
            raise exceptions.BadRequest("every part but the last is a multiple of 256 KiB")
        return Answer(308, b"", {"Range": f"bytes=0-{len(data) - 1}"} if data else {})

    def _put(
        self, request: Request, bucket: str, name: str, data: bytes, query: Mapping[str, str]
    ) -> dict[str, Any]:
        """Makes an object; to write over one is to delete it."""
        self._require(request, "objects.create", bucket, name)
        if self._objects.path(bucket, name).is_file():
            self._require(request, "objects.delete", bucket, name)
        return self._objects.put(bucket, name, data, query)

    def _require(self, request: Request, permission: str, bucket: str, name: str = "") -> None:
        self._iam.require(request, f"storage.{permission}", f"gs://{bucket}", name)

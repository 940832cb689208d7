"""The requests of Cloud Storage that TensorFlow's gs:// file system and google-cloud-storage make.

After the JSON API's reference ("Objects", "Resumable uploads", "Multipart uploads") and
TensorFlow's `tsl/platform/cloud/gcs_file_system.cc`, which reads by the XML API and writes by
resumable uploads only.
"""

import json
import re
import urllib.parse
import uuid

from google.api_core import exceptions
from requests_toolbelt import MultipartDecoder

from tests.cloud.front import Answer
from tests.cloud.iam import Iam

_CHUNK = 256 * 1024  # each part of a resumable upload but the last is a multiple of it
_BUCKET = r"/storage/v1/b/([^/]+)"
_OBJECT = rf"{_BUCKET}/o/([^/]+)"


class Storage:
    """Answers requests over objects."""

    def __init__(self, objects, iam=None):
        self._objects, self._iam = objects, iam or Iam()
        self._begun = {}  # what there is of resumable uploads
        # With the permission for the bucket, or for the object, that the path names first.
        self._routes = [
            ("POST|PUT", rf"/upload{_BUCKET}/o", self._upload, ""),
            ("GET", _BUCKET, self._bucket, "buckets.get"),
            ("GET", rf"{_BUCKET}/iam/testPermissions", self._permissions, ""),
            ("GET", rf"{_BUCKET}/o", self._list, "objects.list"),
            ("POST", rf"{_OBJECT}/rewriteTo/b/([^/]+)/o/([^/]+)", self._copy, "objects.get"),
            ("DELETE", _OBJECT, self._delete, "objects.delete"),
            ("GET", rf"(?:/download)?{_OBJECT}", self._get, "objects.get"),
            ("GET", r"/([^/]+)/(.+)", self._media, "objects.get"),
        ]

    def answer(self, request):
        """The answer to a request."""
        for methods, pattern, handler, permission in self._routes:
            match = re.fullmatch(pattern, request.path)
            if match and request.method in methods:
                parts = [urllib.parse.unquote(part) for part in match.groups()]
                if permission:
                    self._require(request, permission, *parts[:2])
                answer = handler(request, *parts)
                fields = request.query.get("fields")
                return answer._replace(content=_part(answer.content, fields)) if fields else answer
        raise exceptions.MethodNotImplemented(f"not in this store: {request.method} {request.path}")

    def _bucket(self, request, bucket):
        self._objects.path(bucket, "")
        about = {"name": bucket, "location": "US-CENTRAL1", "locationType": "region"}
        return Answer(200, {**about, "projectNumber": "123456789"})

    def _permissions(self, request, bucket):
        """All that there are for objects, as far as the caller has them for the bucket."""
        known = [f"storage.objects.{verb}" for verb in ("get", "list", "create", "delete")]
        own = [each for each in known if self._iam.allows(request, each, f"gs://{bucket}")]
        return Answer(200, {"permissions": own})

    def _list(self, request, bucket):
        return Answer(200, self._objects.page(bucket, request.query))

    def _get(self, request, bucket, name):
        if request.query.get("alt") == "media":
            return self._media(request, bucket, name)
        return Answer(200, self._objects.get(bucket, name, request.query))

    def _delete(self, request, bucket, name):
        self._objects.delete(bucket, name, request.query)
        return Answer(204)

    def _copy(self, request, bucket, name, to_bucket, to_name):
        _, data = self._objects.read(bucket, name, {})
        resource = self._put(request, to_bucket, to_name, data, request.query)
        return Answer(200, {"done": True, "resource": resource})

    def _media(self, request, bucket, name):
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range") or "")
        start = int(match[1]) if match else 0
        stop = int(match[2]) + 1 if match and match[2] else None
        known, data = self._objects.read(bucket, name, request.query, start, stop)
        headers = {
            "x-goog-hash": f"crc32c={known['crc32c']}",
            "x-goog-generation": known["generation"],
        }
        if not match:
            return Answer(200, data, headers)
        if not data:
            return Answer(416, b"", headers)
        span = f"bytes {start}-{start + len(data) - 1}/{known['size']}"
        return Answer(206, data, {**headers, "Content-Range": span})

    def _upload(self, request, bucket):
        query, body = request.query, request.body
        if "upload_id" in query:
            return self._continue(request, bucket)
        about = {}
        if query["uploadType"] == "multipart":
            parts = MultipartDecoder(body, request.headers["Content-Type"]).parts
            about, body = json.loads(parts[0].content), parts[1].content
        elif query["uploadType"] == "resumable":
            about = json.loads(body or "{}")
        query = {**query, "name": query.get("name") or about["name"]}
        query["crc32c"] = about.get("crc32c", "")
        if query["uploadType"] != "resumable":
            return Answer(200, self._put(request, bucket, query["name"], body, query))
        self._objects.path(bucket, query["name"])
        identity = uuid.uuid4().hex
        self._begun[identity] = b""
        again = urllib.parse.urlencode({**query, "upload_id": identity})
        scheme = "http" if request.host.startswith("127.") else "https"
        return Answer(200, b"", {"Location": f"{scheme}://{request.host}{request.path}?{again}"})

    def _continue(self, request, bucket):
        """Takes a part, `bytes 0-9/*`, or tells how much is there, `bytes */10`."""
        query, size = request.query, len(request.body)
        span = request.headers.get("Content-Range") or f"bytes 0-{size - 1}/{size}"
        if query["upload_id"] not in self._begun:
            raise exceptions.from_http_status(410, "The upload session has expired.")
        data = self._begun[query["upload_id"]]
        first, total = re.fullmatch(r"bytes (\*|\d+)(?:-\d+)?/(\*|\d+)", span).groups()
        if first != "*":
            if int(first) > len(data):
                raise exceptions.ServiceUnavailable("a part is missing before this one")
            data = self._begun[query["upload_id"]] = data[: int(first)] + request.body
        if total == str(len(data)):
            return Answer(200, self._put(request, bucket, query["name"], data, query))
        if len(data) % _CHUNK:
            raise exceptions.BadRequest("every part but the last is a multiple of 256 KiB")
        return Answer(308, b"", {"Range": f"bytes=0-{len(data) - 1}"} if data else {})

    def _put(self, request, bucket, name, data, query):
        """Makes an object; to write over one is to delete it."""
        self._require(request, "objects.create", bucket, name)
        if self._objects.path(bucket, name).is_file():
            self._require(request, "objects.delete", bucket, name)
        return self._objects.put(bucket, name, data, query)

    def _require(self, request, permission, bucket, name=""):
        self._iam.require(request, f"storage.{permission}", f"gs://{bucket}", name)


def _part(content, fields):
    """Returns a partial response, by `fields` such as `items(name,size),nextPageToken`."""
    if isinstance(content, list):
        return [_part(each, fields) for each in content]
    chosen = re.findall(r"(\w+)(?:\(([^()]+)\)|/([\w/]+))?,?", fields)
    return {
        name: _part(content[name], inner or deeper) if inner or deeper else content[name]
        for name, inner, deeper in chosen
        if name in content
    }

import concurrent.futures
import dataclasses
import hashlib
import pathlib
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from dataset_files import make_idx, read_folder, write_files

from components.convert.sources import downloads
from components.convert.sources.downloads import OFFERED, RemoteFile, download
from components.convert.sources.registry import find_paths, source_digest
from tests.cloud.faults import ResetError
from tests.cloud.front import Answer, Front, Request
from tests.errors import user_error

DATA = np.random.default_rng(0).bytes(300_000)
GOOD, BACKWARDS = Answer(200, DATA), Answer(200, DATA[::-1])


class Server:
    """Server that gives or raises the answers in turn, and the last one again."""

    url: str
    answers: Sequence[Answer | ResetError | Callable[[Request], Answer]] = ()
    requests = 0

    def offer(self, *answers, name="data.gz", content=DATA):
        self.answers = answers
        sha256 = hashlib.sha256(content).hexdigest()
        urls = (f"{self.url}/{name}",)
        return RemoteFile(name=name, urls=urls, num_bytes=len(content), sha256=sha256)

    def respond(self, request):
        answer = self.answers[min(self.requests, len(self.answers) - 1)]
        self.requests += 1
        if isinstance(answer, ResetError):
            raise answer
        return answer(request) if callable(answer) else answer


def hang(request):
    time.sleep(1.5)
    return GOOD


@pytest.fixture
def server(monkeypatch):
    for name, seconds in {"_CONNECT_S": 2, "_READ_S": 0.3, "_PAUSE_S": 0.01}.items():
        monkeypatch.setattr(downloads, name, seconds)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    with Front(0, server.respond) as front:
        server.url = f"http://127.0.0.1:{front.server_port}"
        yield server
        front.shutdown()


@pytest.mark.parametrize(
    "answers",
    [
        [GOOD],
        [Answer(500), Answer(429), GOOD],
        [ResetError(GOOD), GOOD],
        [hang, GOOD],
    ],
)
def test_download_is_repeated(tmp_path, server, answers):
    file = server.offer(*answers)
    for damage in (b"", DATA[:-1] + b"x"):  # What is there, but damaged, is downloaded again.
        server.requests = 0
        write_files(tmp_path / "new", {"data.gz": damage} if damage else {})
        for _ in range(2):
            download([file], tmp_path / "new")
            assert read_folder(tmp_path / "new") == {"data.gz": DATA}
            assert server.requests == len(answers)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (BACKWARDS, "300,000 bytes, whose SHA-256 is"),
        (Answer(404), "404 Client Error"),
        (hang, "Read timed out"),
    ],
)
def test_failed_download_names_url(tmp_path, server, answer, message):
    file = server.offer(answer)
    with user_error(f"{file.urls[0]}.*{message}.*--source"):
        download([file], tmp_path)
    assert not list(tmp_path.iterdir()) and server.requests == 3


def test_other_url_takes_over(tmp_path, server):
    file = server.offer(BACKWARDS, GOOD)
    download([dataclasses.replace(file, urls=file.urls * 2)], tmp_path)
    assert read_folder(tmp_path) == {"data.gz": DATA}


def test_parallel_downloads_share_request(tmp_path, server):
    file = server.offer(GOOD)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(download, [[file]] * 4, [tmp_path] * 4))
    assert server.requests == 1 and read_folder(tmp_path) == {"data.gz": DATA}


def test_dataset_without_source_is_downloaded(tmp_path, server, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/cache")
    make_idx(tmp_path / "offered", train=20, test=5)
    files = read_folder(tmp_path / "offered")
    names = sorted(files, key=lambda name: ("t10k" in name, name))
    offered = tuple(server.offer(name=name, content=files[name]) for name in names)
    monkeypatch.setitem(OFFERED, "fashion_mnist", offered)
    digest = source_digest("fashion_mnist", f"{tmp_path}/offered")
    assert source_digest("fashion_mnist", None) == digest
    assert find_paths("fashion_mnist", "given") == "given" and find_paths("idx", None) is None
    assert not server.requests
    server.answers = [lambda request: Answer(200, files[request.path[1:]])]
    downloaded = pathlib.Path(find_paths("fashion_mnist", None))
    assert downloaded == tmp_path / "cache/tfrecord-training-pipeline/fashion_mnist"
    assert read_folder(downloaded) == files

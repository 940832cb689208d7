import concurrent.futures
import dataclasses
import hashlib
import importlib.util
import pathlib
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from dataset_files import make_idx, read_folder

from common.errors import UserError
from components.convert.sources import downloads
from components.convert.sources.downloads import OFFERED, RemoteFile, download
from components.convert.sources.registry import find_paths, find_source, source_digest
from tests.cloud.faults import ResetError
from tests.cloud.front import Answer, Front, Request

DATA = np.random.default_rng(0).bytes(300_000)
GOOD, NOT_FOUND, UNAVAILABLE = Answer(200, DATA), Answer(404), Answer(500)


@dataclasses.dataclass
class Server:
    """Server that gives the answers, or raises them, one after another and the last one again; it counts the requests."""

    url: str = ""
    answers: list[Answer | ResetError | Callable[[Request], Answer]] = dataclasses.field(
        default_factory=list
    )
    requests: int = 0

    def offer(self, *answers: Answer | ResetError | Callable[[Request], Answer]) -> RemoteFile:
        self.answers = list(answers)
        sha256 = hashlib.sha256(DATA).hexdigest()
        return RemoteFile(
            name="data.gz", urls=(f"{self.url}/data.gz",), num_bytes=len(DATA), sha256=sha256
        )

    def respond(self, request: Request) -> Answer:
        self.requests += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ResetError):
            raise answer
        return answer(request) if callable(answer) else answer


def hang(request: Request) -> Answer:
    time.sleep(0.6)
    return GOOD


@pytest.fixture(autouse=True)
def haste(monkeypatch) -> None:
    for name, seconds in {"_CONNECT_S": 2, "_READ_S": 0.3, "_PAUSE_S": 0.01}.items():
        monkeypatch.setattr(downloads, name, seconds)


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    server = Server()
    with Front(0, server.respond) as front:
        server.url = f"http://127.0.0.1:{front.server_port}"
        yield server
        front.shutdown()


@pytest.mark.parametrize(
    "answers",
    [
        [GOOD],
        [UNAVAILABLE, UNAVAILABLE, GOOD],
        [Answer(429), GOOD],
        [ResetError(GOOD), GOOD],
        [hang, GOOD],
    ],
    ids=["good", "5xx", "429", "cut", "hangs"],
)
def test_download_is_repeated(tmp_path, server, answers):
    file, folder = server.offer(*answers), tmp_path / "new"
    assert download([file], folder) == [folder / "data.gz"]
    assert (folder / "data.gz").read_bytes() == DATA
    assert server.requests == len(answers) and [path.name for path in folder.iterdir()] == [
        "data.gz"
    ]


@pytest.mark.parametrize(
    ("answer", "message", "requests"),
    [
        (
            Answer(200, DATA[::-1]),
            f"SHA-256 is {hashlib.sha256(DATA[::-1]).hexdigest()} where .* was",
            1,
        ),
        (Answer(200, DATA + b"more"), "300,004 bytes, whose SHA-256 is", 1),
        (Answer(200), "0 bytes, whose SHA-256 is", 1),
        (NOT_FOUND, "404 Client Error", 3),
        (hang, "Read timed out. .read timeout=0.3", 3),
        (ResetError(), "data.gz: .", 3),
    ],
    ids=["checksum", "too long", "empty", "404", "silent", "closes"],
)
def test_failed_download_names_url(tmp_path, server, answer, message, requests):
    file = server.offer(answer)
    with pytest.raises(UserError, match=message) as error:
        download([file], tmp_path)
    assert (
        "--source" in str(error.value)
        and file.urls[0] in str(error.value)
        and "\n" not in str(error.value)
    )
    assert not list(tmp_path.iterdir()) and server.requests == requests


@pytest.mark.parametrize(
    ("content", "requests"), [(DATA, 0), (DATA[:-1] + b"x", 1)], ids=["good", "damaged"]
)
def test_damaged_file_is_downloaded_again(tmp_path, server, content, requests):
    (tmp_path / "data.gz").write_bytes(content)
    download([server.offer(GOOD)], tmp_path)
    assert server.requests == requests and (tmp_path / "data.gz").read_bytes() == DATA


def test_other_url_takes_over(tmp_path, server):
    file = server.offer(Answer(200, DATA[::-1]), GOOD)
    download(
        [dataclasses.replace(file, urls=(*file.urls, f"{server.url}/mirror/data.gz"))], tmp_path
    )
    assert (tmp_path / "data.gz").read_bytes() == DATA


def test_parallel_downloads_share_request(tmp_path, server):
    file = server.offer(GOOD)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(download, [[file]] * 4, [tmp_path] * 4))
    assert server.requests == 1 and (tmp_path / "data.gz").read_bytes() == DATA


def test_unwritable_directory_is_refused(tmp_path, server):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UserError, match=r"cannot write downloads to .*Not a directory; set XDG_CACHE_HOME"
    ):
        download([server.offer(GOOD)], tmp_path / "file" / "d")


def test_one_reachable_host_suffices(server, monkeypatch):
    server.answers = [UNAVAILABLE]
    downloads.require_reachable(["http://no.such.host.invalid/x", f"{server.url}/x"])
    monkeypatch.setenv("http_proxy", server.url)
    downloads.require_reachable(["http://no.such.host.invalid/x"])
    monkeypatch.setenv("no_proxy", "no.such.host.invalid")
    with pytest.raises(UserError, match=r"cannot reach no.such.host.invalid \(.*resolve.*--source"):
        downloads.require_reachable(["http://no.such.host.invalid/x"])


def test_dataset_without_source_is_downloaded(tmp_path, server, monkeypatch, capsys, fails):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, files = tmp_path / "offered", []
    make_idx(folder, train=20, test=5)
    for path in (
        pathlib.Path(file.path) for file in find_source("fashion_mnist").files(str(folder))
    ):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        url = f"{server.url}/{path.name}"
        files.append(
            RemoteFile(name=path.name, urls=(url,), num_bytes=path.stat().st_size, sha256=digest)
        )
    monkeypatch.setitem(OFFERED, "fashion_mnist", tuple(files))
    assert source_digest("fashion_mnist", None) == source_digest("fashion_mnist", str(folder))
    assert find_paths("fashion_mnist", "given") == "given" and find_paths("idx", None) is None
    assert not server.requests
    server.answers = [NOT_FOUND]
    line = fails("--dataset", "fashion_mnist", "--output", tmp_path / "out")
    assert "404 Client Error" in line and "--source" in line and not (tmp_path / "out").exists()
    server.answers = [lambda request: Answer(200, (folder / request.path[1:]).read_bytes())]
    downloaded = find_paths("fashion_mnist", None)
    assert downloaded == str(tmp_path / "cache" / "tfrecord-training-pipeline" / "fashion_mnist")
    assert read_folder(pathlib.Path(downloaded)) == read_folder(folder)
    assert f"downloading {files[0].urls[0]}" in capsys.readouterr().out


def test_offers_equal_tensorflow_datasets():
    root = (
        pathlib.Path(importlib.util.find_spec("tensorflow_datasets").origin).parent
        / "url_checksums"
    )
    for name in OFFERED.keys() - {"taxi"}:
        lines = [line.split("\t")[:3] for line in (root / f"{name}.txt").read_text().splitlines()]
        for file in OFFERED[name]:
            assert any([url, str(file.num_bytes), file.sha256] in lines for url in file.urls)

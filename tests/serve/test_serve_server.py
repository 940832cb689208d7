"""Servers as their clients see them."""

import concurrent.futures
import itertools
import json
import random
import signal
import socket
import subprocess
import threading
import time

import numpy as np
import psutil
import pytest
import requests
import tensorflow as tf
from PIL import Image
from saved_models import export_untrained

from components.predict.model import Model
from components.register.register import open_registry
from components.serve.__main__ import main
from tests.pictures import convert_pictures, encoded
from tests.programs import wait_until

pytestmark = pytest.mark.cluster
ROW = {"fare": 12.5, "Stops": 3, "began": "2024-01-31 08:15", "paid": True, "company": "Łódź"}
CELLS = {
    "fare": "12.5",
    "Stops": "3",
    "began": "2024-01-31 08:15",
    "paid": "true",
    "company": "Łódź",
}


def of_model(registry, rows, version="1"):
    """Returns the answers of the version to rows of texts, without a server."""
    model = Model(open_registry(str(registry)).find("rides", version).model_dir)
    answers = model.ask("raw", {name: tf.constant([row[name] for row in rows]) for name in CELLS})
    return {
        name: values.astype(str if values.dtype == object else values.dtype).tolist()
        for name, values in answers.items()
    }


def test_rows_are_texts_of_cells(server, registry):
    sent, cells = zip(
        (ROW, CELLS),
        ({**ROW, "Stops": 3.0}, CELLS),
        ({}, dict.fromkeys(CELLS, "")),
        ({**ROW, "fare": None, "paid": "No"}, {**CELLS, "fare": "", "paid": "no"}),
        ({**ROW, "company": 7, "paid": 0.0}, {**CELLS, "company": "7", "paid": "0"}),
        strict=True,
    )
    expected = of_model(registry, cells)
    response = server.send({"instances": sent})
    assert response.headers["x-model-version"] == "1"
    rows = response.json()["predictions"]
    assert {name: [row[name] for row in rows] for name in expected} == expected
    columns = {name: [row.get(name) for row in sent] for name in CELLS}
    assert server.ask(inputs=columns) == {"outputs": expected}


def test_v2_columns(server):
    inputs = [
        {"name": "fare", "datatype": "FP32", "shape": [2], "data": [12.5, 1]},
        {"name": "company", "datatype": "BYTES", "shape": [2], "data": ["Łódź", "none"]},
    ]
    body = {"inputs": inputs, "outputs": [{"name": "probabilities"}]}
    response = server.send(body, "/v2/models/rides/infer")
    expected = server.ask(inputs={each["name"]: each["data"] for each in inputs})["outputs"]
    (output,) = response.json()["outputs"]
    values = np.reshape(output["data"], output["shape"]).tolist()
    assert values == expected["probabilities"]


def test_images_as_files_and_pixels(serving, tmp_path):
    """Vertex AI gives a container the folder of a version."""
    manifest, paths = convert_pictures(tmp_path, 20)
    export_untrained(manifest, tmp_path / "version" / "1", "cnn")
    files = [*map(encoded, paths)]
    pixels = [np.asarray(Image.open(path)).tolist() for path in paths]
    with serving("shapes", AIP_STORAGE_URI=str(tmp_path / "version")) as server:
        answer = server.ask(instances=files)
        assert len(answer["predictions"]) == 20
        assert {"class_name", "probabilities"} < answer["predictions"][0].keys()
        assert server.ask(instances=[{"image_bytes": file} for file in files]) == answer
        assert server.ask(instances=pixels) == answer
        assert server.ask(instances=[{"image": each} for each in pixels]) == answer
        for row in ({"b64": "abc"}, {"b64": "abcd"}, [[1]], np.full((8, 9, 3), 256).tolist(), {}):
            response = server.send({"instances": [row]})
            assert response.status_code == 400 and [*response.json()] == ["error"], response.text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"instances": [{}, {}, {}, {"fare": "abc"}]}, "fare: 'abc' is no finite 32-bit number "
            "(row 3)"),
        ({"instances": [{"Fare": 1}]}, "unknown input of row 0: 'Fare'; did you mean 'fare'? "
            "(known: Stops, "),
        ({"instances": []}, "0 rows; send 1 to 10,000 at a time (--max-rows)"),
        ({"inputs": {"fare": [1, 2], "Stops": [1]}}, "with lists of one length"),
        ({"instances": [ROW], "signature_name": "row"}, "unknown signature 'row'; did you mean "
            "'raw'? (known: raw"),
    ],
)  # fmt: skip
def test_wrong_request_is_told_why(server, body, message):
    response = server.send(body)
    assert response.status_code == 400 and [*response.json()] == ["error"], response.text
    assert message in response.json()["error"]


def malformed(draw):
    """A path and a body that is no request of the rides."""
    depth = draw.choice([3, 70, 300, 900])
    junk = draw.choice([True, 3, -1.5, "x", {"a": {}}, json.loads("[" * depth + "]" * depth)])
    wrong = {draw.choice(["fare", "Stops", "began"]): draw.choice(["x", "1e999", {}, 10**40])}
    v2 = {"name": "fare", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}
    changed = {**v2, draw.choice([*v2]): draw.choice([None, {}, [2**62], [[1], [2, 3]]])}
    path, body = draw.choice(
        [
            ("v1", {"instances": junk}),
            ("v1", {"inputs": {"fare": junk}}),
            ("v1", {"instances": [ROW, wrong]}),
            ("v1", {"instances": [ROW], "signature_name": junk}),
            (draw.choice(["v1", "v2"]), junk),
            ("v2", {"inputs": junk}),
            ("v2", {"inputs": [v2, changed]}),
        ]
    )
    content = json.dumps(body).encode()
    if draw.random() < 0.2:
        content = draw.choice([content[:-1] + b"[", b"\xff" + content, b"", b"[" * 50_000])
    return path, content


def test_malformed_requests_leave_server_answering(server):
    """Each gets one JSON error of one line; the server still answers, and grows no more."""
    expected, draw = server.ask(instances=[ROW]), random.Random(0)
    memory = psutil.Process(server.process.pid).memory_full_info
    urls = {"v1": "/v1/models/rides:predict", "v2": "/v2/models/rides/infer"}
    for number in range(200):
        if number == 100:  # What a server allocates once is there.
            before = memory().uss
        path, body = malformed(draw)
        response = server.send(body, urls[path], headers={"content-type": "application/json"})
        assert 400 <= response.status_code < 500, (response.status_code, response.text, body[:300])
        error = response.json()["error"]
        assert error and "\n" not in error and len(error) < 1000, (error, body[:300])
    assert server.ask(instances=[ROW]) == expected
    assert memory().uss < before + 10_000_000


def test_port_in_use_refused(refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(main, "--model-dir", "nowhere", "--host", "127.0.0.1", "--port", port)
    assert f"--port {port} of 127.0.0.1: cannot be used" in line


def test_limits(serving, slow_model):
    flags = ["--max-request-mb", 0.01, "--max-rows", 3, "--timeout-s", 3]
    with serving("slow", "--model-dir", slow_model, *flags) as server:
        assert server.ask(instances=[1, 2, {"count": 3}]) == {"predictions": [1, 2, 3]}
        assert server.ask(inputs={"count": [1]}) == {"outputs": [1]}
        for body, status, flag in (
            (b" " * 10_001, 413, "--max-request-mb"),
            (iter([b"{}"]), 413, "--max-request-mb"),  # Its size is not known before.
            ({"instances": [1] * 4}, 400, "--max-rows"),
            ({"instances": [2 * 10**6]}, 504, "--timeout-s"),
        ):
            response = server.send(body)
            assert response.status_code == status and flag in response.json()["error"]
        assert server.send({}, "/v2/repository/models/slow/unload").status_code == 403
        assert server.ask(instances=[1]) == {"predictions": [1]}


def test_alias_moves_under_load(server, registry):
    models, stop = open_registry(str(registry)), threading.Event()

    def ask():
        response = server.send({"instances": [ROW]})
        assert response.status_code == 200, response.text
        (row,) = response.json()["predictions"]
        return response.headers["x-model-version"], row["probabilities"]

    def work(answers):
        while not stop.is_set():
            answers.append(ask())

    def wait_for_all(version):
        wait_until(lambda: all(each and each[-1][0] == version for each in seen), 120, 0.1)

    seen = [[], [], []]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        clients = [pool.submit(work, answers) for answers in seen]
        try:
            wait_for_all("1")
            models.promote("rides", "2")
            wait_for_all("2")
            models.promote("rides", "3")  # It is damaged.
            wait_until(lambda: "version 2 still answers: " in server.log.read_text(), 120, 0.1)
            models.promote("rides", "1")
            wait_for_all("1")
        finally:
            stop.set()
    for client in clients:
        client.result()
    one, two = (of_model(registry, [CELLS], version)["probabilities"][0] for version in "12")
    assert one != two
    for answers in seen:
        changes = [answer for answer, _ in itertools.groupby(answers)]
        assert changes == [("1", one), ("2", two), ("1", one)]


def test_sigterm_under_load(serving, slow_model):
    with serving("slow", "--model-dir", slow_model) as server:
        start = time.monotonic()
        server.ask(instances=[200_000])
        count = int(200_000 * 4 / (time.monotonic() - start))  # Takes some 4 s.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            running = [pool.submit(server.ask, instances=[count]) for _ in range(3)]
            time.sleep(1)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            with pytest.raises(requests.ConnectionError):
                server.ask(instances=[1])
            assert [each.result() for each in running] == [{"predictions": [count]}] * 3
        assert server.process.wait(timeout=20) == -signal.SIGTERM


def test_local_server_ends_with_its_owner(serving, slow_model):
    here = "--model-dir", slow_model, "--host", "127.0.0.1"
    with (
        subprocess.Popen(["sleep", "600"]) as owner,
        serving("slow", *here, PIPELINE_OWNER_PID=str(owner.pid)) as server,
    ):
        connections = [
            each for each in psutil.net_connections("tcp") if each.pid == server.process.pid
        ]
        assert [each.laddr.ip for each in connections if each.status == "LISTEN"] == ["127.0.0.1"]
        owner.kill()
        owner.wait()
        assert server.process.wait(timeout=30) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--name", "ridez"], "unknown model 'ridez'; did you mean 'rides'? (known: rides)"),
        (["--name", "rides@3"], "the model cannot be read"),
    ],
)
def test_server_that_cannot_start(registry, refused, flags, message):
    assert message in refused(main, "--registry", registry, *flags)

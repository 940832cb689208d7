"""A minute of requests to components.serve, and to a handler of ten lines on FastAPI.

    python -m tools.bench.answer MODEL_DIR '{"fare": "12.5", "company": "Flash Cab", ...}'

The program `hey` has to be there. Each server has one core, and each request one row. A server gets
four fifths of the requests a second that it answers at most.
"""

import functools
import json
import re
import subprocess
import sys

import psutil
import requests

from tests.programs import run, start, wait_until

_PEER = """
import sys, fastapi, tensorflow as tf, uvicorn
loaded = tf.saved_model.load(sys.argv[1])
app = fastapi.FastAPI()

@app.post("/predict")
def predict(body: dict) -> list:
    rows = body["instances"]
    columns = {name: tf.constant([row[name] for row in rows]) for name in rows[0]}
    answers = loaded.signatures["raw"](**columns)
    texts = [values.numpy().astype(str).tolist() for values in answers.values()]
    return [dict(zip(answers, row)) for row in zip(*texts)]

uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""
_PORT, _CLIENTS = 8321, 8


def main():
    """Prints a line for each server."""
    model, row = sys.argv[1:]
    ours = ["-m", "components.serve", "--name=m", f"--model-dir={model}", f"--port={_PORT}"]
    for name, command, path in (
        ("components.serve", ours, "/v1/models/m:predict"),
        ("FastAPI", ["-c", _PEER, model, str(_PORT)], "/predict"),
    ):
        url, body = f"http://localhost:{_PORT}{path}", json.dumps({"instances": [json.loads(row)]})
        own = {"env": {"CUDA_VISIBLE_DEVICES": "-1"}, "stdout": subprocess.DEVNULL}
        with start("taskset", "--cpu-list", 0, sys.executable, *command, **own) as server:
            ask = functools.partial(requests.post, url, json=json.loads(body), timeout=9)
            wait_until(ask, 120, 0.2, [requests.ConnectionError])
            most = hey(url, body, 5, 10**6)["rate"]
            before = psutil.Process(server.pid).cpu_times()
            found = hey(url, body, 60, int(0.8 * most / _CLIENTS))
            after = psutil.Process(server.pid).cpu_times()
            busy = (after.user + after.system - before.user - before.system) / found["answered"]
            server.terminate()
        print(
            f"{name}: {found}, {1e3 * busy:.2f} ms of processor each; at most {most:.0f}/s",
            flush=True,
        )


def hey(url, body, seconds, rate):
    """Sends requests at a rate by each client; returns statuses, rate, and quantiles in ms."""
    line = f"hey -z {seconds}s -c {_CLIENTS} -q {rate} -m POST -T application/json"
    printed = run(*line.split(), "-d", body, url)
    codes = {
        code: int(count) for code, count in re.findall(r"\[(\d+)\]\s+(\d+) responses", printed)
    }
    quantiles = {
        f"p{p}": 1e3 * float(re.search(rf"{p}%+ in ([\d.]+) secs", printed)[1]) for p in (50, 99)
    }
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", printed)[1])
    return {"answered": sum(codes.values()), "by_status": codes, "rate": rate, **quantiles}


if __name__ == "__main__":
    main()

"""What a model costs whoever serves it, on this machine."""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from components.evaluate.eval_set import EvalSet
from components.evaluate.score import Model
from trainer.base.files import tree_bytes

_BATCHES, _WARM_UP, _CALLS, _LIMIT_S = (1, 32), 3, 100, 0.1


def footprint(model: Model, records: EvalSet) -> dict[str, Any]:
    """Size in `bytes`, `parameters`, `load_s`, and by batch size `latency_ms`, the `median` and `p99` of so many `calls`.

    Latency is from the columns to the first of the answers in memory, after three calls that are not counted; measured are
    100 calls, or as many as 0.1 s has room for.
    """
    serve, row = model.serve, records.rows([0])
    return {
        "bytes": tree_bytes(model.dir),
        "parameters": int(sum(np.prod(v.shape) for v in serve.variables if v.dtype.is_floating)),
        "load_s": model.load_s,
        "latency_ms": {
            str(n): _latency_ms(serve, {k: tf.repeat(v, n, axis=0) for k, v in row.items()}) for n in _BATCHES
        },
    }


def _latency_ms(serve: Any, given: Mapping[str, tf.Tensor]) -> dict[str, Any]:
    def call_ms() -> float:
        began = time.perf_counter()
        next(iter(serve(**given).values())).numpy()
        return 1e3 * (time.perf_counter() - began)

    for _ in range(_WARM_UP):
        call_ms()
    taken, until = [call_ms()], time.monotonic() + _LIMIT_S
    while len(taken) < _CALLS and time.monotonic() < until:
        taken.append(call_ms())
    return {"median": float(np.median(taken)), "p99": float(np.quantile(taken, 0.99)), "calls": len(taken)}

"""Requests for a model and its answers, in the REST interface of TensorFlow Serving.

    rows = [{"fare": 12.5, "paid": None}, {"fare": 3}]
    answers = ask(model, {"instances": rows}, max_rows=10_000)
    as_json(answers, by_row=True)    # {"predictions": [{"class_name": "yes", ...}, ...]}

A request has either `instances`, a list of rows, or `inputs`, an object with a list for each
column. A row is an object with a value for each input of the signature. If there is one input only,
its value may stand alone. An absent key means null. The signature is the first that applies of

1. the `signature_name` of the request;
2. `raw`, if the model takes a table;
3. `image_bytes`, if the first row is {"b64": BASE64} or has an input of that name;
4. `serving_default`.

`raw` takes texts as the cells of a CSV file have them. Numbers and booleans become such
texts; null and NaN become the first text that stands for a missing value. In other signatures null
is NaN for an input of floats, and an error for any other. Any text may be given as {"b64": BASE64};
the model gets the decoded bytes.
"""

import base64
import contextlib
from typing import Any

import numpy as np
import tensorflow as tf

from common.errors import UserError, unknown
from common.provenance import IMAGE_BYTES, RAW, SERVING_DEFAULT
from common.validation import show
from components.predict.model import Model


def ask(model: Model, request: Any, max_rows: int) -> dict[str, np.ndarray]:
    """Returns a model's answers to a request.

    Args:
      model: The model.
      request: The parsed JSON of the request, with `instances` or `inputs`. Its `signature_name`
        is used or, without one, the signature that suits the model and the first row.
      max_rows: Largest number of rows of a request.

    Returns:
      The answers to N rows, [N, ...] by name.

    Raises:
      UserError: If the request is malformed, has no rows or too many, or names an unknown signature
        or input, if a value does not fit its input, or if the model refuses a row. The message says
        in one line where and what is wrong.
    """
    rows = _rows(request)
    if not 0 < len(rows) <= max_rows:
        raise UserError(f"{len(rows):,} rows; send 1 to {max_rows:,} at a time (--max-rows)")
    signature = SERVING_DEFAULT
    if model.columns:
        signature = RAW
    elif isinstance(rows[0], dict) and rows[0].keys() & {"b64", IMAGE_BYTES}:
        signature = IMAGE_BYTES
    signature = str(request.get("signature_name", signature))
    specs = model.inputs(signature)
    only = min(specs) if len(specs) == 1 else "a value without a name"
    missing = {c.name: (c.missing or ("",))[0] for c in model.columns if signature == RAW}
    values = {name: list[Any]() for name in specs}
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or "b64" in row:
            row = {only: row}
        if wrong := row.keys() - specs:
            raise unknown(f"input of row {number}:", min(wrong), specs)
        for name, spec in specs.items():
            value = row.get(name)
            try:
                values[name].append(_value(spec, missing.get(name), value))
            except Exception:  # Wrong values lead to errors of many types.
                raise UserError(
                    f"{name}: {show(value)} is no {spec.dtype.name} of shape {spec.shape[1:]} "
                    f"(row {number})"
                ) from None
    return model.ask(
        signature,
        {name: np.array(values[name], spec.dtype.as_numpy_dtype) for name, spec in specs.items()},
    )


def as_json(answers: dict[str, np.ndarray], by_row: bool) -> dict[str, Any]:
    """Returns answers as the value of a JSON response.

    Args:
      answers: Arrays [N, ...] by name; texts are bytes in UTF-8, and become strings.
      by_row: Whether to return `predictions`, a list with an object for each row, or `outputs`, an
        object with a list for each answer. A single answer stands there without its name.
    """
    result: Any = {
        name: (np.char.decode(values.astype(bytes)) if values.dtype == object else values).tolist()
        for name, values in answers.items()
    }
    if len(result) == 1:
        (result,) = result.values()
    elif by_row:
        result = as_rows(result)
    return {"predictions" if by_row else "outputs": result}


def _rows(request: Any) -> list[Any]:
    """Returns the rows of a request: objects by name of input, or values without a name.

    Raises:
      UserError: If the request has neither of the two forms, or its columns differ in length.
    """
    match request:
        case {"instances": [*rows]}:
            return rows
        case {"inputs": dict(columns)} if all(isinstance(each, list) for each in columns.values()):
            with contextlib.suppress(ValueError):  # For lists of different lengths.
                return as_rows(columns)
    raise UserError(
        'send {"instances": [ROW, ...]} or {"inputs": {NAME: [VALUE, ...], ...}}, with lists of '
        "one length"
    )


def as_rows(columns: dict[str, Any]) -> list[Any]:
    """Returns lists of equal length by column as a list of rows, objects by column."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _value(spec: tf.TensorSpec, missing: str | None, value: Any) -> Any:
    """Returns a value as an input takes it: bytes for texts, else an array of its type and shape.

    Args:
      spec: Spec of the input.
      missing: Text that stands for a missing value. If it is not None, null and NaN become it, and
        other numbers and booleans the texts of a CSV file's cells. If it is None, null becomes NaN
        for floats, and is an error otherwise.
      value: Value of the request.

    Raises:
      Exception: Of any type, if the input cannot take the value.
    """
    if missing is not None:
        if value is None or value != value:
            value = missing
        elif isinstance(value, int | float):
            # Booleans are written as in JSON. Vertex AI turns the integer 5 into 5.0.
            value = str(value).lower().removesuffix(".0")
    if spec.dtype == tf.string:
        return (
            base64.b64decode(value["b64"], validate=True)
            if isinstance(value, dict)
            else value.encode()
        )
    value = np.array(value)
    fitting = value.astype(spec.dtype.as_numpy_dtype)
    if fitting.shape != spec.shape[1:] or not (spec.dtype.is_floating or (fitting == value).all()):
        raise ValueError
    return fitting

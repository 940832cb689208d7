"""Writes a model's predictions for files to a file.

predict(Options(model_dir="job/model", source="trips.csv", output="predictions.parquet"))
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from common.errors import UserError, first_line, writable
from common.machine import usable_cores
from common.progress import track
from common.provenance import FAULTS, RAW
from components.convert.expressions import connect, literal
from components.predict.model import Model
from components.predict.options import FORMATS, Options
from components.predict.rows import Batch, Rows, open_rows
from components.register.register import find_version

_WAITING = 2  # Batches for each thread that are read ahead.
# Result of a batch: the rows that were answered, with their answers; and the refused rows, each
# with its `fault` and the number of its `row`, from 1.
_Answers = tuple[pa.RecordBatch, list[dict[str, Any]]]


def predict(options: Options) -> tuple[int, int]:
    """Writes a model's answers to rows, beside columns of the rows and in their order.

    Rows that the model refuses are left out. They are written to `options.errors_file` as JSON
    lines, each with what is wrong. Without such rows there is no such file.

    Args:
      options: Model, rows and output.

    Returns:
      The number of rows that were answered, and the number that were refused.

    Raises:
      UserError: If the model or the source cannot be read, if an output exists already or cannot be
        written, or if no row can be answered. Nothing new is left behind then.
      ConnectionError: If Vertex AI or a store does not answer, likewise.
    """
    output, errors = options.output, options.errors_file
    for path in (output, errors):
        if os.path.exists(path):
            raise UserError(f"{path}: is there already; delete it, or give another --output")
    model = Model.load(
        options.model_dir or find_version(options.registry, options.name or "").model_dir
    )
    partial = f"{output}.partial"
    counts = collections.Counter[str]()
    try:
        with (
            writable(f"--output {output}"),
            open(f"{errors}.partial", "w", encoding="utf-8") as wrong_rows,
            open_rows(options, model) as rows,
        ):
            answered = _answered(model, rows, options.batch_size, counts, wrong_rows)
            # The first batch has the types of the columns, which the writer has to know.
            first = next(answered, None)
            if first is None:
                wrong_rows.flush()
                raise UserError(_no_answers(f"{errors}.partial", rows))
            _write(first, answered, partial, FORMATS[os.path.splitext(output)[1]])
        os.rename(partial, output)
        if counts["wrong"]:
            os.rename(f"{errors}.partial", errors)
    finally:
        for path in (partial, f"{errors}.partial"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    return counts["answered"], counts["wrong"]


def _no_answers(errors: str, rows: Rows) -> str:
    """Returns the message for a source of which no row can be answered.

    Args:
      errors: Path of the file of refused rows, of which the first line is shown.
      rows: The rows.
    """
    with open(errors, encoding="utf-8") as file:
        fault = json.loads(line)["fault"] if (line := file.readline()) else "there are no rows"
    return f"none of {rows.count:,} rows can be answered; of the first: {fault}"


def _answered(
    model: Model, rows: Rows, size: int, counts: collections.Counter[str], wrong_rows: Any
) -> Iterator[pa.RecordBatch]:
    """Yields batches of answered rows in order, computed in as many threads as there are cores.

    Refused rows are written to the file `wrong_rows` as JSON lines; a batch that has no other rows
    is passed over. `counts` is updated with the numbers of rows as `answered` and `wrong`.
    """
    pending: collections.deque[concurrent.futures.Future[_Answers]] = collections.deque()
    threads = usable_cores()
    with (
        concurrent.futures.ThreadPoolExecutor(threads) as pool,
        track("predicting", rows.count, "rows") as advance,
    ):

        def take() -> Iterator[pa.RecordBatch]:
            right, wrong = pending.popleft().result()
            for row in wrong:
                wrong_rows.write(json.dumps(row, default=str, ensure_ascii=False) + "\n")
            counts.update(answered=len(right), wrong=len(wrong))
            advance(len(right) + len(wrong))
            if len(right):
                yield right

        # Batches are taken in the order in which they were submitted, so rows keep their order.
        start = 1
        for batch in rows.batches(size):
            numbers = np.arange(start, start + len(batch.kept))
            start += len(numbers)
            pending.append(pool.submit(_answer, model, rows.signature, batch, numbers))
            if len(pending) > _WAITING * threads:
                yield from take()
        while pending:
            yield from take()


def _answer(model: Model, signature: str, batch: Batch, numbers: np.ndarray) -> _Answers:
    """Returns the result of a batch: kept columns and answers of its right rows, and the others.

    An answer is called `predicted_NAME` if a kept column has its name, with more of these before it
    if one has that too.

    Args:
      model: The model.
      signature: Name of its signature.
      batch: Rows to answer.
      numbers: Numbers of these rows in the source, int64 [N], from 1.
    """
    try:
        answers = model.ask(signature, batch.inputs)
    except UserError as error:
        return _answer_right_ones(model, signature, batch, numbers, str(error))
    columns = dict(zip(batch.kept.schema.names, batch.kept.columns, strict=True))
    # Answers of one number for a row come before those of several.
    for name, values in sorted(answers.items(), key=lambda answer: answer[1].ndim):
        while name in columns:
            name = f"predicted_{name}"
        columns[name] = _arrow(values)
    return pa.RecordBatch.from_pydict(columns), []


def _answer_right_ones(
    model: Model, signature: str, batch: Batch, numbers: np.ndarray, fault: str
) -> _Answers:
    """Returns the result of a batch that the model has refused as a whole, with the `fault`.

    The signature `raw` has a companion that says which rows are at fault. Otherwise the batch is
    halved until the rows at fault are alone.
    """
    count = len(batch.kept)

    def refused(i: int, fault: str) -> dict[str, Any]:
        return {"fault": fault, "row": int(numbers[i]), **batch.kept.slice(i, 1).to_pylist()[0]}

    if signature == RAW:
        faults = model.ask(FAULTS, batch.inputs)[FAULTS]
        parts = [np.flatnonzero(faults == b"")]
        wrong = [refused(int(i), faults[i].decode()) for i in np.flatnonzero(faults)]
    elif count == 1:
        return batch.kept[:0], [refused(0, fault)]
    else:
        parts, wrong = np.array_split(np.arange(count), 2), []
    right = []
    for part in parts:
        if len(part):
            answered, faulty = _answer(model, signature, batch[part], numbers[part])
            right += [answered] if len(answered) else []
            wrong += faulty
    return (
        pa.Table.from_batches(right).combine_chunks().to_batches()[0] if right else batch.kept[:0]
    ), wrong


def _arrow(values: np.ndarray) -> pa.Array:
    """Returns answers [N] or [N, k] as an Arrow array of numbers, texts, or lists of numbers."""
    if values.shape[1:] == (1,):
        values = values[:, 0]
    if values.dtype == object:
        return pa.array(values.tolist(), pa.binary()).cast(pa.string())
    flat = pa.array(values.reshape(-1))
    return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _write(first: pa.RecordBatch, others: Iterator[pa.RecordBatch], path: str, form: str) -> None:
    """Writes batches of rows to a file with DuckDB, which can write all of the formats.

    Args:
      first: The first batch, which has the types of the columns.
      others: All further batches.
      path: Path of the file.
      form: Options of DuckDB's COPY, such as `FORMAT parquet`.

    Raises:
      UserError: If DuckDB cannot write the file.
      BaseException: What `others` raises.
    """
    faults: list[BaseException] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield first
            yield from others
        except BaseException as error:  # DuckDB would replace it by an error of its own.
            faults.append(error)
            raise

    answers = pa.RecordBatchReader.from_batches(first.schema, batches())
    with connect() as connection:
        connection.register("answers", answers)
        try:
            connection.execute(f"COPY answers TO {literal(path)} ({form})")
        except duckdb.Error as error:
            raise faults[0] if faults else UserError(f"{path}: {first_line(error)}") from None

"""Writes a model's predictions for files to a file.

predict(Options(model_dir="job/model", source="trips.csv", output="predictions.parquet"))
"""

from __future__ import annotations

import collections
import concurrent.futures
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from common.errors import UserError, reading, writable
from common.machine import usable_cores
from common.progress import track
from components.convert.expressions import connect, literal
from components.predict.model import Model, RefusalError, find_model
from components.predict.options import Options
from components.predict.rows import MEMORY, Rows, open_rows

_WAITING = 2  # Batches for each thread that are read ahead.
# Result of a batch: the rows that were answered, with their answers; and the refused rows, each
# with its `fault` and the number of its `row` in the batch, from 1.
_Answers = tuple[list[pa.RecordBatch], list[dict[str, Any]]]


def predict(options: Options) -> tuple[int, int]:
    """Writes a model's answers to rows, beside the columns of the rows and in their order.

    The column of an image is its `file`; a record of a dataset has its number, `record`, and its
    label. Rows that the model refuses are left out. They are written to `options.errors_file` as
    JSON lines, each with what is wrong; without such rows that file is empty. It replaces one that
    is there.

    Args:
      options: Model, rows and output.

    Returns:
      The number of rows that were answered, and the number that were refused.

    Raises:
      UserError: If the model or the source cannot be read, if the output exists already or cannot
        be written, or if no row can be answered. Nothing new is left behind then.
      ConnectionError: If Vertex AI or a store does not answer, likewise.
    """
    output = options.output
    if os.path.exists(output):
        raise UserError(f"{output}: is there already; delete it, or give another --output")
    _, directory = find_model(options)
    model = Model(directory)
    num_right, num_wrong, fault = 0, 0, ""
    writer: Any = None
    with (
        writable(f"--output {output}"),
        # Beside the output, so that complete files only have to be renamed.
        tempfile.TemporaryDirectory(prefix=".predictions-", dir=os.path.dirname(output)) as folder,
    ):
        staged, refused = f"{folder}/staged", f"{folder}/refused"
        complete = f"{folder}/{os.path.basename(output)}"
        with (
            open(refused, "w", encoding="utf-8") as wrong_rows,
            open_rows(options, model) as rows,
            track("predicting", rows.count, "rows") as advance,
        ):
            for right, wrong in _answers(model, rows):
                start = num_right + num_wrong
                for batch in right:
                    # Only the answers show the types of their columns.
                    writer = writer or pa.ipc.new_stream(staged, batch.schema)
                    writer.write_batch(batch)
                    num_right += len(batch)
                for row in wrong:
                    fault = fault or f"; of the first: {row['fault']}"
                    row["row"] += start
                    print(json.dumps(row, default=str, ensure_ascii=False), file=wrong_rows)
                num_wrong += len(wrong)
                advance(num_right + num_wrong - start)
        if not num_right:
            raise UserError(f"none of {num_wrong:,} rows can be answered{fault}")
        writer.close()
        # DuckDB can write all of the formats, and tells them by the file's name.
        with (
            reading(f"--output {output}", "give another one"),
            connect(memory_limit=MEMORY, temp_directory=folder) as connection,
        ):
            connection.register("answers", pa.ipc.open_stream(pa.OSFile(staged)))
            connection.execute(f"COPY answers TO {literal(complete)}")
        os.rename(refused, options.errors_file)
        os.rename(complete, output)
    return num_right, num_wrong


def _answers(model: Model, rows: Rows) -> Iterator[_Answers]:
    """Yields the result of each batch in order, computed in as many threads as there are cores."""
    pending: collections.deque[concurrent.futures.Future[_Answers]] = collections.deque()
    threads = usable_cores()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for kept, inputs in rows.batches:
            pending.append(pool.submit(_answer, model, rows.signature, kept, inputs))
            if len(pending) > _WAITING * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _answer(
    model: Model,
    signature: str,
    kept: pa.RecordBatch,
    inputs: Mapping[str, np.ndarray],
) -> _Answers:
    """Returns the result of a batch.

    If the model refuses the batch and names the rows at fault, the others are asked about once
    more. If it names none, the batch is halved until the rows at fault are alone. An answer is
    called `predicted_NAME` if a kept column has its name, with more of these before it if one has
    that too.

    Args:
      model: The model.
      signature: Name of its signature.
      kept: Columns to write beside the answers, N rows.
      inputs: Inputs of the signature, [N, ...] by name.
    """
    right: list[pa.RecordBatch] = []
    faults: dict[int, str] = {}
    waiting = [np.arange(len(kept))]
    while waiting:
        rows = waiting.pop()
        try:
            answers = model.ask(signature, {name: values[rows] for name, values in inputs.items()})
            batch = kept.take(pa.array(rows))
            for name, values in answers.items():
                while name in batch.schema.names:
                    name = f"predicted_{name}"
                batch = batch.append_column(name, _arrow(values))
            right.append(batch)
        except RefusalError as refusal:
            if named := refusal.faults:
                faults |= {int(rows[i]): fault for i, fault in named.items()}
                waiting.append(np.delete(rows, [*named]))
            elif len(rows) > 1:
                waiting += reversed(np.array_split(rows, 2))
            else:
                faults |= dict.fromkeys(rows.tolist(), str(refusal))
    wrong = [
        {"fault": fault, "row": row + 1, **kept.slice(row, 1).to_pylist()[0]}
        for row, fault in sorted(faults.items())
    ]
    return right, wrong


def _arrow(values: np.ndarray) -> pa.Array:
    """Returns answers [N, ...] as an Arrow array of numbers or texts, or of lists of these.

    Dimensions of size 1 make no lists.
    """
    array = pa.array(values.reshape(-1), pa.string() if values.dtype == object else None)
    for size in reversed(values.shape[1:]):
        if size > 1:
            array = pa.FixedSizeListArray.from_arrays(array, size)
    return array

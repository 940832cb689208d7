"""KServe's `ModelServer` with one of our models: limits, errors of one line, and versions that change while it answers.

serve(Options(name="trips@champion", port=8080))          # until SIGTERM or Ctrl-C
"""

import asyncio
import contextlib
import gc
import logging
import warnings
from typing import Any

import kserve
import orjson
import tensorflow as tf
import uvicorn
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from kserve.logging import logger, trace_logger
from kserve.model_server import app
from kserve.utils.numpy_codec import from_np_dtype
from starlette.exceptions import HTTPException

from common.errors import UserError, first_line, reading
from common.provenance import SERVING_DEFAULT
from components.predict.model import Model
from components.register.register import find_version
from components.serve.options import Options
from components.serve.request import as_json, ask


class ServedModel(kserve.Model):
    """A model whose version may change while it answers; the header `x-model-version` says which one has answered."""

    def __init__(self, options: Options) -> None:
        super().__init__(options.name.partition("@")[0], return_response_headers=True)
        self.engine = True  # KServe calls `start_engine` when the server starts.
        self._options = options
        self._served = ("", None)

    def load(self) -> bool:
        """Loads the version that is meant, if it is another one than before, and has it answer from then on."""
        version, directory = "none", self._options.model_dir
        if not directory:
            found = find_version(self._options.registry, self._options.name)
            version, directory = found.number, found.model_dir
        if version != self._served[0]:
            model = Model.load(directory)
            zeros = {
                name: tf.constant(
                    "0" if spec.dtype == tf.string else 0, spec.dtype, [1, *spec.shape[1:]]
                )
                for name, spec in model.inputs(SERVING_DEFAULT).items()
            }
            with contextlib.suppress(UserError):  # A refusal is an answer.
                model.ask(SERVING_DEFAULT, zeros)
            self._served = (version, model)
            logger.info("version %s answers, from %s", version, directory)
            gc.collect()  # What TensorFlow keeps of the old version refers to itself.
        self.ready = True
        return True

    async def start_engine(self) -> None:
        """Starts to look for another version, until the server ends."""
        self._looks = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._options.poll_s)
            try:
                await asyncio.to_thread(self.load)
            except Exception as error:  # Whatever it is, the old version answers.
                logger.error("version %s still answers: %s", self._served[0], first_line(error))

    async def predict(self, payload: Any, headers: dict, response_headers: dict) -> Any:
        """Answers a request of V1, which is JSON or its value, or of V2."""
        version, model = self._served
        response_headers["x-model-version"] = version
        try:
            return await asyncio.to_thread(self._answer, model, payload)
        except ValueError as error:
            raise HTTPException(400, first_line(error)) from None

    def _answer(self, model: Model, payload: Any) -> Any:
        """Returns the answer, in a thread; a ValueError with what is wrong with the request."""
        max_rows = self._options.max_rows
        if not isinstance(payload, kserve.InferRequest):
            request = orjson.loads(payload) if isinstance(payload, bytes) else payload
            return as_json(ask(model, request, max_rows), "instances" in request)
        columns = {}
        for column in payload.inputs:
            with reading(column.name, "send data of its datatype and shape"):
                columns[column.name] = column.as_numpy().tolist()
        answers = ask(model, {"inputs": columns}, max_rows)
        outputs = [
            kserve.InferOutput(name, [*a.shape], from_np_dtype(a.dtype), a)
            for name, a in answers.items()
        ]
        return kserve.InferResponse(
            payload.id or "", self.name, outputs, requested_outputs=payload.request_outputs
        )


def serve(options: Options) -> None:
    """Loads the model and answers requests until a signal; those that are running then are answered still.

    Raises:
      UserError: If there is no such model, or it cannot be loaded.
    """
    warnings.simplefilter("ignore")  # KServe calls what FastAPI deprecates.
    config = uvicorn.Config  # KServe has it listen on all addresses.
    uvicorn.Config = lambda served, **settings: config(served, **{**settings, "host": options.host})
    server = kserve.ModelServer(options.port, enable_grpc=False)
    for each in (trace_logger, logging.getLogger("uvicorn.access")):
        each.setLevel("WARNING")  # They have four lines for each request.
    logger.addFilter(
        lambda record: not record.exc_info
    )  # A client is told what is wrong; uvicorn logs other errors.
    model = ServedModel(options)
    model.load()

    @app.middleware("http")
    async def limit(request: Any, call_next: Any) -> JSONResponse:
        length = request.headers.get(
            "content-length", "inf" if "transfer-encoding" in request.headers else 0
        )
        if float(length) > options.max_request_mb * 1e6:
            return _error(
                413,
                f"send a Content-Length of at most {options.max_request_mb:g} MB "
                "(--max-request-mb)",
            )
        if (
            "/repository/" in request.url.path
            or "inference-header-content-length" in request.headers
        ):
            return _error(403, "clients load nothing, and send tensors as JSON")
        try:
            async with asyncio.timeout(options.timeout_s):
                return await call_next(request)
        except TimeoutError:
            return _error(
                504, f"no answer after {options.timeout_s:g} s (--timeout-s); send fewer rows"
            )

    @app.exception_handler(HTTPException)
    @app.exception_handler(RequestValidationError)
    async def refuse(_: Any, error: Any) -> JSONResponse:
        if isinstance(error, HTTPException):
            return _error(error.status_code, error.detail)
        return _error(400, "{loc}: {msg}".format(**error.errors()[0]))

    server.start([model])


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)

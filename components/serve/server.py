"""Serves a model over HTTP with KServe's `ModelServer`.

It adds limits, error messages of one line, and a change of versions without an interruption.

serve(Options(name="trips@champion", port=8080))          # until SIGTERM or Ctrl-C
"""

import asyncio
import contextlib
import gc
import threading
import time
import warnings
from typing import Any

import kserve
import orjson
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from kserve.logging import logger
from kserve.model_server import DataPlane, ModelRepositoryExtension, RESTServer, app
from kserve.utils.numpy_codec import from_np_dtype
from starlette.exceptions import HTTPException

from common.errors import UserError, first_line, reading
from common.provenance import IMAGE_BYTES
from components.predict.model import Model, find_model
from components.serve.options import Options
from components.serve.request import as_json, ask


class ServedModel(kserve.Model):
    """A model whose version may change while it answers.

    The response header `x-model-version` names the version that has answered.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options.model, return_response_headers=True)
        self._options = options
        self._served: tuple[str, Any] = ("", None)  # No model before `load`.

    def load(self) -> bool:
        """Loads the version to serve, if it is not loaded yet, and serves it from then on.

        A model of `model_dir` is loaded once. Otherwise the registry is asked for the version each
        time, and a loaded one is replaced if the alias points at another one by now.

        Returns:
          True.

        Raises:
          UserError: If there is no such version, or if it cannot be loaded. The old version then
            stays.
          ConnectionError: If Vertex AI or a store does not answer, likewise.
        """
        version, directory = find_model(self._options)
        if version != self._served[0]:
            model = Model(directory)
            # A first request, so that clients need not wait for TensorFlow's preparations. The
            # model may well refuse such a row.
            row = {"b64": ""} if IMAGE_BYTES in model.signatures else {}
            with contextlib.suppress(UserError):
                ask(model, {"instances": [row]}, 1)
            self._served = (version, model)
            print(f"version {version} answers, from {directory}")
            gc.collect()  # TensorFlow's objects of the old version are in reference cycles.
        return super().load()

    def follow_alias(self) -> None:
        """Calls `load` every `poll_s` seconds, without an end.

        An error of `load` is logged, and the old version stays.
        """
        while True:
            time.sleep(self._options.poll_s)
            try:
                self.load()
            except Exception as error:  # The old version goes on after any error.
                logger.error("version %s still answers: %s", self._served[0], first_line(error))

    async def predict(
        self, payload: Any, headers: dict[str, str], response_headers: dict[str, str]
    ) -> Any:
        """Answers a request. KServe calls this.

        Args:
          payload: Request of protocol V1, as JSON or as its value, or of V2.
          headers: Headers of the request, which are not used.
          response_headers: Headers of the response, to which the version is added as
            `x-model-version`; it is `none` for a model of `model_dir`.

        Returns:
          For V1 a dict with `predictions` if the request has `instances`, else with `outputs`; for
          V2 a `kserve.InferResponse`.

        Raises:
          ValueError: If something is wrong with the request; a UserError is one.
        """
        # Both are read at once, since `load` may replace them while the model answers.
        response_headers["x-model-version"], model = self._served
        request = orjson.loads(payload) if isinstance(payload, bytes) else payload
        is_v2 = isinstance(payload, kserve.InferRequest)
        if is_v2:
            columns = {}
            for column in payload.inputs:
                with reading(column.name, "send data of its datatype and shape"):
                    columns[column.name] = column.as_numpy().tolist()
            request = {"inputs": columns}
        # In a thread, so that other requests need not wait for the model.
        answers = await asyncio.to_thread(ask, model, request, self._options.max_rows)
        if not is_v2:
            return as_json(answers, "instances" in request)
        outputs = [
            kserve.InferOutput(name, [*answer.shape], from_np_dtype(answer.dtype), answer)
            for name, answer in answers.items()
        ]
        return kserve.InferResponse(
            payload.id or "", self.name, outputs, requested_outputs=payload.request_outputs
        )


def serve(options: Options) -> None:
    """Loads the model, and answers requests until SIGTERM or SIGINT, which then take effect.

    Requests that are running at that moment are still answered.

    Raises:
      UserError: If the port cannot be used, there is no such model, or it cannot be loaded.
      ConnectionError: If Vertex AI or a store does not answer while it is loaded.
    """
    warnings.simplefilter("ignore")  # KServe calls functions that FastAPI has deprecated.
    # KServe logs a traceback for each wrong request, of which the client is told. Other errors are
    # logged by uvicorn.
    logger.addFilter(lambda record: not record.exc_info)
    model = ServedModel(options)
    models = kserve.ModelRepository()
    models.update(model)
    server = RESTServer(app, DataPlane(models), ModelRepositoryExtension(models), options.port)
    server.config.host = options.host  # KServe has no option for the address to listen on.
    try:
        port = server.config.bind_socket()
    except SystemExit:
        raise UserError(
            f"--port {options.port} of {options.host}: cannot be used; give another one"
        ) from None
    model.load()
    threading.Thread(target=model.follow_alias, daemon=True).start()

    @app.middleware("http")
    async def limit(request: Any, call_next: Any) -> JSONResponse:
        headers = request.headers
        # A request in chunks has no length that could be checked before it is read.
        length = headers.get("content-length", "inf" if "transfer-encoding" in headers else 0)
        if float(length) > options.max_request_mb * 1e6:
            return _error(
                413,
                f"send a Content-Length of at most {options.max_request_mb:g} MB "
                "(--max-request-mb)",
            )
        # Clients may neither use KServe's API to load models nor send tensors in binary form, of
        # which it checks little.
        if "/repository/" in request.url.path or "inference-header-content-length" in headers:
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
    @app.exception_handler(ValueError)
    async def refuse(_: Any, error: Any) -> JSONResponse:
        if isinstance(error, RequestValidationError):
            error = "{loc}: {msg}".format(**error.errors()[0])
        return _error(getattr(error, "status_code", 400), first_line(error))

    server.run([port])


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)

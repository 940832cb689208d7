"""ML Metadata over gRPC: the store of its wheel, as Kubeflow Pipelines' own server offers it.

python metadata_server.py HOST:PORT FILE
"""

import concurrent.futures
import sys
import threading

import grpc
from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store as calls
from ml_metadata.proto import metadata_store_pb2 as messages

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_READ_WRITE_CREATE = 3


class Service(grpc.GenericRpcHandler):
    """Gives the bytes of each request to the function of the store with its name."""

    def __init__(self, file):
        config = messages.ConnectionConfig()
        config.sqlite.filename_uri = file
        config.sqlite.connection_mode = _READ_WRITE_CREATE
        options = messages.MigrationOptions().SerializeToString()
        self._store = calls.CreateMetadataStore(config.SerializeToString(), options)
        self._lock = threading.Lock()

    def service(self, handler_call_details):
        call = getattr(calls, handler_call_details.method.rpartition("/")[2])

        def answer(request, context):
            with self._lock:
                response, error, code = call(self._store, request)
            if code:
                context.abort(_CODES[code], error.decode())
            return response

        return grpc.unary_unary_rpc_method_handler(answer)


def main(address, file):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((Service(file),))
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])

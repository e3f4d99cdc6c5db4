"""A small OTLP receiver over HTTP in the test process: takes the protobuf that a real collector would get."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.runtime.harness import await_condition


@dataclass
class Collector:
    """What has arrived; ``answer`` is the status of the answers, ``gate`` holds them back while it is not set."""

    endpoint: str = ""
    answer: int = 200
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    def spans(self) -> list[Any]:
        """All spans that were accepted."""
        return [
            span
            for request in list(self.requests)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def await_spans(self, count: int) -> dict[str, list[Any]]:
        """So many spans, by name."""
        await_condition(lambda: len(self.spans()) >= count)
        found: dict[str, list[Any]] = {}
        for span in self.spans():
            found.setdefault(span.name, []).append(span)
        return found


def attributes(holder: Any) -> dict[str, Any]:
    """Attributes of a span or a resource."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in holder.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A receiver on a free port."""
    collector = Collector()
    collector.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces"
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.gate.wait(20)
            if collector.answer == 200:
                request = ExportTraceServiceRequest()
                request.ParseFromString(body)
                collector.requests.append(request)
            self.send_response(collector.answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        collector.gate.set()
        server.shutdown()
        server.server_close()
        thread.join(20)

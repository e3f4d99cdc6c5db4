"""A Prometheus for tests: answers queries over HTTP from scrapes that a test puts in."""

import json
import math
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

MODEL = {"namespace": "nlp", "model": "sentiment", "version": "v1", "revision": "sentiment-v1-aaaaaaaa"}


@dataclass
class Series:
    """Labels and scrapes."""

    labels: dict[str, str]
    samples: list[tuple[float, float]]


def server(pod: str, name: str, samples: list[tuple[float, float]], **labels: str) -> Series:
    """A series of a model server's pod."""
    target = {"job": "pods", "instance": f"{pod}:8080"}
    return Series({"__name__": name, **MODEL, **target, "pod": pod, **labels}, samples)


@dataclass
class FakePrometheus:
    """Range selectors with ``=~`` on the name, or a plain name, and the query for targets that are down."""

    series: list[Series] = field(default_factory=list)
    down: list[dict[str, str]] = field(default_factory=list)
    gateway: float | None = None
    """Requests per second that the mesh counts for the Service."""
    status: int = 200
    body: bytes | None = None
    """Answered instead, if set."""
    delay: float = 0.0
    queries: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[str]] = field(default_factory=dict)
    """Values of other expressions."""
    warnings: dict[str, list[str]] = field(default_factory=dict)
    """What is warned of in answers to queries that hold a text."""
    asked: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def answer(self, query: str, now: float) -> bytes:
        """The JSON of an answer."""
        if self.body is not None:
            return self.body
        if query.startswith("up{"):
            found: list[Any] = [{"metric": labels, "value": [now, "0"]} for labels in self.down]
            return self._wrapped(query, "vector", found)
        if query.startswith("sum by"):
            service = {"destination_service_namespace": "nlp", "destination_service_name": "sentiment"}
            sent = [{"metric": service, "value": [now, written(self.gateway)]}] if self.gateway is not None else []
            return self._wrapped(query, "vector", sent)
        if query in self.values:
            found = [{"metric": {"n": str(n)}, "value": [now, value]} for n, value in enumerate(self.values[query])]
            return self._wrapped(query, "vector", found)
        reach = float(re.search(r"\[(\d+)s\]$", query)[1])  # type: ignore[index]
        names = re.search(r'__name__=~"([^"]+)"', query)
        pattern = names[1] if names else query.split("{")[0]
        result = []
        for series in self.series:
            within = [(at, value) for at, value in series.samples if now - reach <= at <= now]
            shadow = 'shadow!="true"' in query and series.labels.get("shadow") == "true"
            if within and not shadow and re.fullmatch(pattern, series.labels["__name__"]):
                result.append({"metric": series.labels, "values": [[at, written(value)] for at, value in within]})
        return self._wrapped(query, "matrix", result)

    def _wrapped(self, query: str, kind: str, result: list[Any]) -> bytes:
        answer: dict[str, Any] = {"status": "success", "data": {"resultType": kind, "result": result}}
        said = [warning for text, warnings in self.warnings.items() if text in query for warning in warnings]
        return json.dumps(answer | ({"warnings": said} if said else {}), separators=(",", ":")).encode()


def written(value: float) -> str:
    """A number as Prometheus writes it."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


@contextmanager
def serving(fake: FakePrometheus, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve on a free port; gives the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            fake.queries.append(query["query"][0])
            fake.headers = dict(self.headers)
            fake.asked.set()
            if fake.delay:
                fake.released.wait(fake.delay)
            body = fake.answer(query["query"][0], float(query.get("time", [str(time.time())])[0]))
            self.send_response(fake.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # The handshake belongs to the thread of a connection: one that fails must not end the server.
    if tls is not None:
        listener.socket = tls.wrap_socket(listener.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{listener.server_port}"
    finally:
        fake.released.set()
        listener.shutdown()
        thread.join()
        listener.server_close()

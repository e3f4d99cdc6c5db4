"""The program behind the image `sandbox-echo`: a small HTTP server for trying out a cluster.

Every path answers with JSON that says who answered; `/healthz` is for probes, `/exit?code=N` ends the process,
`/allocate?mib=N` takes memory, `/unready` and `/ready` switch the readiness that `/readyz` reports,
`/slow?seconds=S` answers late, `/metrics` counts requests for Prometheus.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

LARGEST_BACKLOG = 512


class EchoServer(ThreadingHTTPServer):
    """Counts what is in flight, so that it can end without losing a request."""

    daemon_threads = True
    request_queue_size = LARGEST_BACKLOG

    def __init__(self, address: tuple[str, int], version: str) -> None:
        self.version = version
        self.ready = True
        self.draining = False
        self.hoard: list[bytes] = []
        self.in_flight = 0
        self.answered = 0
        self.lock = threading.Lock()
        super().__init__(address, EchoHandler)


class EchoHandler(BaseHTTPRequestHandler):
    """Answers one connection's requests."""

    protocol_version = "HTTP/1.1"
    server: EchoServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature is the library's
        """Log nothing per request."""

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer(b"")

    def do_POST(self) -> None:
        """Answer a POST with its body's length."""
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _answer(self, body: bytes) -> None:
        with self.server.lock:
            self.server.in_flight += 1
        try:
            code = self._act()
            raw, content_type = self._content(len(body))
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(raw)))
            self.send_header("x-model-version", self.server.version)
            if self.server.draining:
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            self.wfile.write(raw)
        finally:
            with self.server.lock:
                self.server.in_flight -= 1
                self.server.answered += 1

    def _content(self, received: int) -> tuple[bytes, str]:
        if urlsplit(self.path).path == "/metrics":
            lines = (
                "# TYPE sandbox_echo_requests_total counter",
                f"sandbox_echo_requests_total {self.server.answered}",
            )
            return ("\n".join(lines) + "\n").encode(), "text/plain; version=0.0.4"
        content = {
            "pod": os.environ.get("HOSTNAME", ""),
            "version": self.server.version,
            "path": self.path,
            "method": self.command,
            "received": received,
        }
        return json.dumps(content).encode(), "application/json"

    def _act(self) -> int:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        match url.path:
            case "/readyz":
                return 200 if self.server.ready else 503
            case "/ready" | "/unready":
                self.server.ready = url.path == "/ready"
            case "/slow":
                time.sleep(float(query.get("seconds", "1")))
            case "/allocate":
                self.server.hoard.append(b"\x01" * (int(query.get("mib", "1")) << 20))
            case "/status":
                return int(query.get("code", "200"))
            case "/exit":
                os._exit(int(query.get("code", "1")))
        return 200


def main() -> None:
    """Serve until SIGTERM, then go on for a moment, finish what is in flight, and end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="v1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--drain", type=float, default=1.0, help="seconds to go on serving after SIGTERM")
    parser.add_argument("--message-file", type=Path, default=None, help="a file whose content is printed at the start")
    parser.add_argument("--fail", default="", help="end at once with this termination message")
    options = parser.parse_args()
    if options.fail:
        Path(os.environ.get("SLIPWAY_TERMINATION_LOG", "/dev/termination-log")).write_text(options.fail)
        sys.exit(1)
    if options.message_file:
        print(options.message_file.read_text().strip(), flush=True)
    server = EchoServer((os.environ.get("SLIPWAY_HOST", "0.0.0.0"), options.port), options.version)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    print(f"serving {options.version} on port {options.port}", flush=True)
    stop.wait()
    print("draining", flush=True)
    server.draining = True
    time.sleep(options.drain)
    server.shutdown()
    server.server_close()
    while server.in_flight:
        time.sleep(0.01)
    print("ended", flush=True)


if __name__ == "__main__":
    main()

"""A storage server on this machine: serves bytes by path, with ranges, and fails on demand."""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Answer:
    """A response; ``cut`` ends the connection after so many bytes."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    ranges: bool = True


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]


Page = Answer | bytes | Callable[[Asked], Answer]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Clients that break off are part of the tests."""


class RemoteServer:
    """Pages by path; what was asked for is kept in ``asked``."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.pages: dict[str, Page] = {}
        self.asked: list[Asked] = []
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{'https' if tls else 'http'}://{self.host}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def json(self, path: str, document: Any) -> None:
        self.pages[path] = json.dumps(document).encode()

    def answer(self, asked: Asked) -> Answer:
        page = self.pages.get(asked.path)
        if page is None:
            return Answer(b"nothing", 404)
        if isinstance(page, bytes):
            return Answer(page)
        return page if isinstance(page, Answer) else page(asked)


def _handler(remote: RemoteServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
            asked = Asked(unquote(parts.path), query, {name.lower(): value for name, value in self.headers.items()})
            remote.asked.append(asked)
            self._give(remote.answer(asked), asked)

        def _give(self, answer: Answer, asked: Asked) -> None:
            body, status, headers = answer.body, answer.status, dict(answer.headers)
            tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            wanted = re.fullmatch(r"bytes=(\d+)-", asked.headers.get("range", ""))
            if status == 200 and answer.ranges:
                headers.setdefault("ETag", tag)
                if wanted and asked.headers.get("if-range") == tag:
                    start = int(wanted[1])
                    headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
                    status, body = 206, body[start:]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if answer.cut is None else body[: answer.cut])
            if answer.cut is not None:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@contextmanager
def remote_server(tls: ssl.SSLContext | None = None) -> Iterator[RemoteServer]:
    server = RemoteServer(tls)
    try:
        yield server
    finally:
        server.close()


def certificate(folder: Path) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "server.pem"
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file

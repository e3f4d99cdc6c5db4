"""The command ``slipway-runtime``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from slipway_runtime import __version__, journal
from slipway_runtime.artefact.digest import digest_of
from slipway_runtime.refusal import ExitCode, Refusal, write_termination_message
from slipway_runtime.settings import (
    Device,
    Format,
    Limits,
    Listener,
    ModelSettings,
    Precision,
    ServeSettings,
    Warmup,
    parse_duration,
)

# These names have a meaning of their own in the protocol's paths.
_RESERVED_NAMES = ("stats", "")
_HEADER_SAFE = re.compile(r"[A-Za-z0-9._-]+")


class _Parser(argparse.ArgumentParser):
    """Bad arguments end with the exit code and the termination message the operator looks for."""

    def error(self, message: str) -> NoReturn:
        raise Refusal("BadArguments", message, ExitCode.BAD_ARGUMENTS)


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _whole(minimum: int) -> type:
    def parse(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"must be {minimum} or more")
        return value

    parse.__name__ = "whole number"
    return parse  # type: ignore[return-value]


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="slipway-runtime", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_serve(commands.add_parser("serve", help="serve one model"))
    digest = commands.add_parser("digest", help="print the SHA-256 that --sha256 takes, of a file or a folder")
    digest.add_argument("path", type=Path)
    return parser


def _add_serve(serve: argparse.ArgumentParser) -> None:
    limits, listener, warmup = Limits(), Listener(), Warmup()
    serve.add_argument("--model-name", required=True)
    serve.add_argument("--model-version", required=True)
    serve.add_argument("--revision", default="")
    serve.add_argument("--uri", required=True, help="file:///path, of a file or a folder")
    serve.add_argument("--sha256", default="", help="digest the model must have; checked before it is read")
    serve.add_argument("--format", type=Format, default=Format.AUTO, help=", ".join(Format))
    serve.add_argument("--device", type=Device, default=Device.AUTO, help=", ".join(Device))
    serve.add_argument("--precision", type=Precision, default=Precision.FP32, help=", ".join(Precision))
    serve.add_argument("--max-batch-size", type=_whole(1), default=limits.max_batch_size, help="rows")
    serve.add_argument("--max-delay", type=_seconds, default=limits.max_delay)
    serve.add_argument("--timeout", type=_seconds, default=limits.timeout)
    serve.add_argument("--max-queue", type=_whole(1), default=limits.max_queue, help="requests")
    serve.add_argument("--max-request-bytes", type=_whole(1), default=limits.max_request_bytes)
    serve.add_argument("--max-concurrency", type=_whole(0), default=0, help="requests at once; 0: no limit")
    serve.add_argument("--warmup-requests", type=_whole(0), default=warmup.requests)
    serve.add_argument("--warmup-file", type=Path, help="JSON list of {request, response}, or a folder of such files")
    serve.add_argument("--inputs", default="", help="declared inputs, JSON list of {name, datatype, shape}")
    serve.add_argument("--outputs", default="", help="declared outputs, likewise")
    serve.add_argument("--host", default=listener.host, help="default: $SLIPWAY_HOST or 0.0.0.0")
    serve.add_argument("--http-port", type=_whole(0), default=listener.http_port)
    serve.add_argument("--grpc-port", type=_whole(0), default=listener.grpc_port)
    serve.add_argument("--shadow-file", type=Path, help="JSON file that names a candidate; may appear and change")
    serve.add_argument("--grace", type=_seconds, default=listener.grace, help="longest drain after SIGTERM")
    serve.add_argument("--pre-stop", type=_seconds, default=listener.pre_stop, help="serve on so long after SIGTERM")


def _settings(given: argparse.Namespace) -> ServeSettings:
    if given.model_name in _RESERVED_NAMES:
        raise Refusal("BadArguments", f"--model-name {given.model_name!r} is reserved", ExitCode.BAD_ARGUMENTS)
    if not _HEADER_SAFE.fullmatch(given.model_version):
        raise Refusal("BadArguments", "--model-version must be letters, digits, . _ -", ExitCode.BAD_ARGUMENTS)
    if given.timeout <= 0:
        raise Refusal("BadArguments", "--timeout must be more than 0", ExitCode.BAD_ARGUMENTS)
    return ServeSettings(
        model=ModelSettings(
            name=given.model_name,
            version=given.model_version,
            revision=given.revision,
            uri=given.uri,
            sha256=given.sha256,
            format=given.format,
            device=given.device,
            precision=given.precision,
            inputs_json=given.inputs,
            outputs_json=given.outputs,
        ),
        limits=Limits(
            max_batch_size=given.max_batch_size,
            max_delay=given.max_delay,
            timeout=given.timeout,
            max_queue=given.max_queue,
            max_request_bytes=given.max_request_bytes,
            max_concurrency=given.max_concurrency,
        ),
        warmup=Warmup(given.warmup_requests, given.warmup_file),
        listener=Listener(given.host, given.http_port, given.grpc_port, given.grace, given.pre_stop),
        shadow_file=given.shadow_file,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives the exit code (see ``ExitCode``)."""
    try:
        given = _parser().parse_args(arguments)
        if given.command == "digest":
            sys.stdout.write(f"{digest_of(given.path)}\n")
            return ExitCode.OK
        settings = _settings(given)
    except Refusal as refusal:
        write_termination_message(refusal)
        journal.record("refused", "error", reason=refusal.reason, text=refusal.text, code=int(refusal.code))
        return refusal.code
    # Only serving needs the event loop and the model code behind it.
    from slipway_runtime.lifecycle import run

    return run(settings)

"""The command ``slipway-runtime``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from slipway_runtime import __version__, journal
from slipway_runtime.artefact.digest import digest_of, folder_lines
from slipway_runtime.artefact.tensor_digest import tensor_lines, tensors_digest
from slipway_runtime.processes.group import WORKER_VARIABLE
from slipway_runtime.processes.options import checked, run_supervised
from slipway_runtime.refusal import ExitCode, Refusal, leave_termination_message, write_termination_message
from slipway_runtime.repository import arguments
from slipway_runtime.serving.tenants import TenantRules, read_rules
from slipway_runtime.settings import (
    Access,
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
from slipway_runtime.telemetry import options as telemetry

_LAST_PORT = 65_535


class _Parser(argparse.ArgumentParser):
    """Bad arguments end with the exit code and the termination message the operator looks for."""

    def error(self, message: str) -> NoReturn:
        raise Refusal("BadArguments", message, ExitCode.BAD_ARGUMENTS)


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _tenants(text: str) -> TenantRules:
    try:
        return read_rules(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError("must be true or false")
    return text == "true"


def _whole(minimum: int) -> type:
    def parse(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"must be {minimum} or more")
        return value

    parse.__name__ = "whole number"
    return parse  # type: ignore[return-value]


def _tolerance(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of 0 or more")
    return value


def _port(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= value <= _LAST_PORT:
        raise argparse.ArgumentTypeError(f"must be a port from 0 (any) to {_LAST_PORT}")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="slipway-runtime", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_serve(commands.add_parser("serve", help="serve models"))
    digest = commands.add_parser("digest", help="print the SHA-256 that --sha256 takes, of a file or a folder")
    digest.add_argument("path", type=Path)
    digest.add_argument(
        "--lines", action="store_true", help="print the lines it is made over; a signature signs a folder's"
    )
    digest.add_argument("--tensors", action="store_true", help="of the tensors, whatever shards they are spread over")
    _add_fetch(commands.add_parser("fetch", help="bring a verified model to a folder, for another model server"))
    _add_export(commands.add_parser("export", help="write weights with a model class as a program, and compare"))
    _add_verify(commands.add_parser("verify", help="compare the answers of two models; exit code 1 if they differ"))
    return parser


def _add_export(export: argparse.ArgumentParser) -> None:
    export.add_argument("source", help="path or URI of the model")
    export.add_argument("--to", required=True, choices=("torch-export", "torchscript", "onnx"))
    export.add_argument("--output", type=Path, required=True)
    export.add_argument("--max-rows", type=_whole(2), default=1024, help="largest batch of a torch.export program")
    _add_comparison(export)


def _add_verify(verify: argparse.ArgumentParser) -> None:
    verify.add_argument("first", help="path or URI of the reference")
    verify.add_argument("second", help="path or URI of the other model")
    verify.add_argument("--precision", type=Precision, default=Precision.FP32, help="of the other model")
    verify.add_argument("--goldens", type=Path, help="requests to run, as --warmup-file; default: made-up ones")
    verify.add_argument("--write-goldens", type=Path, help="write the requests with the reference's answers here")
    _add_comparison(verify)


def _add_comparison(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rtol", type=_tolerance, default=1e-3)
    parser.add_argument("--atol", type=_tolerance, default=1e-5)
    parser.add_argument("--inputs", default="", help="declared inputs, as for serve")
    parser.add_argument("--outputs", default="", help="declared outputs, as for serve")


def _add_serve(serve: argparse.ArgumentParser) -> None:
    limits, listener, warmup = Limits(), Listener(), Warmup()
    arguments.add_arguments(serve, _seconds, _whole)
    _add_access(serve)
    serve.add_argument("--format", type=Format, default=Format.AUTO, help=", ".join(Format))
    serve.add_argument("--device", type=Device, default=Device.AUTO, help=", ".join(Device))
    serve.add_argument("--precision", type=Precision, default=Precision.FP32, help=", ".join(Precision))
    serve.add_argument("--max-batch-size", type=_whole(1), default=limits.max_batch_size, help="rows")
    serve.add_argument("--max-delay", type=_seconds, default=limits.max_delay)
    serve.add_argument("--adaptive", type=_truth, default=limits.adaptive, help="wait less while load is low")
    serve.add_argument("--timeout", type=_seconds, default=limits.timeout)
    serve.add_argument("--max-queue", type=_whole(1), default=limits.max_queue, help="requests")
    serve.add_argument("--max-request-bytes", type=_whole(1), default=limits.max_request_bytes)
    serve.add_argument("--max-concurrency", type=_whole(0), default=0, help="requests at once; 0: no limit")
    serve.add_argument("--max-inflight-bytes", type=_whole(0), default=0, help="bodies in flight; 0: no limit")
    serve.add_argument("--tenants", type=_tenants, help="JSON, or a file of it: rates and priorities by tenant")
    serve.add_argument("--cache-bytes", type=_whole(0), default=0, help="answers kept for identical requests; 0: none")
    serve.add_argument("--cache-ttl", type=_seconds, default=limits.cache_ttl, help="how long an answer is kept")
    serve.add_argument("--warmup-requests", type=_whole(0), default=warmup.requests)
    serve.add_argument("--warmup-file", type=Path, help="JSON list of {request, response}, or a folder of such files")
    serve.add_argument("--inputs", default="", help="declared inputs, JSON list of {name, datatype, shape}")
    serve.add_argument("--outputs", default="", help="declared outputs, likewise")
    serve.add_argument("--host", default=listener.host, help="default: $SLIPWAY_HOST or every address")
    serve.add_argument("--http-port", type=_port, default=listener.http_port)
    serve.add_argument("--grpc-port", type=_port, default=listener.grpc_port)
    serve.add_argument("--shadow-file", type=Path, help="JSON file that names a candidate; may appear and change")
    serve.add_argument("--grace", type=_seconds, default=listener.grace, help="longest drain after SIGTERM")
    serve.add_argument("--pre-stop", type=_seconds, default=listener.pre_stop, help="serve on so long after SIGTERM")
    serve.add_argument("--processes", type=_whole(1), default=1, help="that share the ports and the work; CPU only")
    serve.add_argument("--max-connections", type=_whole(0), default=0, help="HTTP, per process; 0: the system's limit")
    serve.add_argument("--keepalive-requests", type=_whole(0), default=0, help="on one HTTP connection; 0: no limit")
    telemetry.add_arguments(serve)


def _add_fetch(fetch: argparse.ArgumentParser) -> None:
    fetch.add_argument("uri", help="as --uri of serve")
    fetch.add_argument("--to", type=Path, required=True, help="folder; what lies in it is removed")
    fetch.add_argument("--name", default="model", help="name of the model below that folder")
    fetch.add_argument("--layout", default="plain", choices=("plain", "triton"), help="triton: a model repository")
    fetch.add_argument("--sha256", default="", help="digest the model must have")
    _add_access(fetch)


def _fetch(given: argparse.Namespace) -> int:
    from slipway_runtime.fetch.delivery import Delivery, Layout, deliver

    layout = Layout(given.layout)
    digest = deliver(Delivery(given.uri, given.to, given.name, given.sha256, layout, _access(given)))
    sys.stdout.write(f"{digest}\n")
    # The operator shows it as the version's loaded digest, since the server in the pod cannot tell.
    leave_termination_message(f"sha256:{digest}")
    return ExitCode.OK


def _add_access(serve: argparse.ArgumentParser) -> None:
    access = Access()
    serve.add_argument("--public-key", type=Path, help="PEM of the key that must have signed the digest")
    serve.add_argument("--signature", default="", help="the signature, in base64")
    serve.add_argument("--signature-uri", default="", help="where the signature lies, instead")
    serve.add_argument("--allow-pickle", action="store_true", help="let a signed model be unpickled")
    serve.add_argument("--storage-secret", type=Path, help="folder with credentials, one file per key")
    serve.add_argument("--model-dir", type=Path, help="where fetched models are kept; default: $SLIPWAY_MODEL_DIR")
    serve.add_argument("--max-artefact-bytes", type=_whole(1), default=access.max_bytes)


def _access(given: argparse.Namespace) -> Access:
    return Access(
        public_key=given.public_key,
        signature=given.signature,
        signature_uri=given.signature_uri,
        allow_pickle=given.allow_pickle,
        storage_secret=given.storage_secret,
        model_dir=given.model_dir,
        max_bytes=given.max_artefact_bytes,
    )


def _settings(given: argparse.Namespace) -> ServeSettings:
    if given.timeout <= 0:
        raise Refusal("BadArguments", "--timeout must be more than 0", ExitCode.BAD_ARGUMENTS)
    template = ModelSettings(
        name="",
        version="",
        revision="",
        uri="",
        sha256=given.sha256,
        format=given.format,
        device=given.device,
        precision=given.precision,
        inputs_json=given.inputs,
        outputs_json=given.outputs,
        access=_access(given),
        instances=given.instances,
        cuda_devices=arguments.cuda_devices(given.cuda_devices),
    )
    return ServeSettings(
        models=arguments.models_of(given, template),
        template=template,
        repository=arguments.repository_settings(given),
        limits=Limits(
            max_batch_size=given.max_batch_size,
            max_delay=given.max_delay,
            timeout=given.timeout,
            max_queue=given.max_queue,
            max_request_bytes=given.max_request_bytes,
            max_concurrency=given.max_concurrency,
            adaptive=given.adaptive,
            max_inflight_bytes=given.max_inflight_bytes,
            cache_bytes=given.cache_bytes,
            cache_ttl=given.cache_ttl,
        ),
        tenants=given.tenants,
        warmup=Warmup(given.warmup_requests, given.warmup_file),
        listener=Listener(given.host, given.http_port, given.grpc_port, given.grace, given.pre_stop),
        shadow_file=given.shadow_file,
        telemetry=telemetry.settings_of(given),
        processes=given.processes,
        max_connections=given.max_connections,
        keepalive_requests=given.keepalive_requests,
    )


def _digest(path: Path, *, tensors: bool, lines: bool) -> str:
    if tensors:
        return tensor_lines(path) if lines else f"{tensors_digest(path)}\n"
    return folder_lines(path) if lines else f"{digest_of(path)}\n"


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; gives the exit code (see ``ExitCode``)."""
    try:
        given = _parser().parse_args(words)
        if given.command == "digest":
            sys.stdout.write(_digest(given.path, tensors=given.tensors, lines=given.lines))
            return ExitCode.OK
        if given.command == "fetch":
            return _fetch(given)
        if given.command in ("export", "verify"):
            from slipway_runtime.export import commands

            return commands.run_export(given) if given.command == "export" else commands.run_verify(given)
        settings = checked(_settings(given))
        if settings.processes > 1 and WORKER_VARIABLE not in os.environ:
            return run_supervised(sys.argv[1:] if words is None else words, settings)
    except Refusal as refusal:
        write_termination_message(refusal)
        journal.record("refused", "error", reason=refusal.reason, text=refusal.text, code=int(refusal.code))
        return refusal.code
    # Only serving needs the event loop and the model code behind it.
    from slipway_runtime.lifecycle import run

    return run(settings)

"""``slipway run``: the operator itself."""

import argparse
import asyncio
import gc
import logging
import os
import socket
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from kubernetes.aio.config import ConfigException

from slipway.app import EXIT_TIMEOUT, operate
from slipway.engine.engine import Settings
from slipway.engine.logs import set_up
from slipway.kube.kinds import APIS
from slipway.kube.lease import LeaseLostError
from slipway.kube.metadata import Key
from slipway.metrics.credentials import Credentials, headers_of
from slipway.notifications.receivers import Receiver, ReceiverError, receivers_of

__all__ = ["add_arguments", "run", "settings_of"]

log = logging.getLogger(__name__)

COLLECT_AFTER = (10_000, 20, 20)
"""When garbage is collected: seldom. Objects of the API are parsed all day and are trees, which need no collector."""
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def add_arguments(parser: argparse.ArgumentParser, environment: Mapping[str, str] | None = None) -> None:
    """Declare the flags; the default of ``--http-port`` is ``SLIPWAY_HTTP_PORT`` where that is set, and so on."""
    environment = os.environ if environment is None else environment
    defaults = Settings()

    def flag(name: str, default: str | float, text: str, **options: object) -> None:
        variable = f"SLIPWAY_{name.upper().replace('-', '_')}"
        parser.add_argument(
            f"--{name}",
            default=environment.get(variable, default),
            help=f"{text} (${variable}, default: {default or 'none'})",
            **options,  # type: ignore[arg-type]
        )

    flag("prometheus-url", defaults.prometheus_url, "where Prometheus answers queries")
    flag("prometheus-token-file", "", "file with the bearer token that Prometheus asks for")
    flag("prometheus-ca-file", "", "certificates of the authority that Prometheus' own one is of")
    flag("prometheus-headers", "", "more headers for Prometheus, as NAME=VALUE separated by commas", type=_headers)
    flag("namespaces", "", "namespaces to work in, separated by commas; none means all")
    flag(
        "apis",
        ",".join(defaults.apis),
        "optional kinds that may be used, separated by commas, or none: those left out are not even watched",
        type=_apis,
    )
    flag("lease-namespace", _own_namespace(), "namespace of the leader's Lease")
    flag("lease-name", "slipway-operator", "name of the leader's Lease")
    parser.add_argument(
        "--no-lease", action="store_true", help="do not elect a leader: for an operator that is surely alone"
    )
    flag("identity", _own_identity(), "name of this process as a leader, which no other may bear")
    flag("http-port", defaults.http_port, "port of /healthz, /readyz and /metrics", type=int)
    flag("http-host", defaults.http_host, "address of these; * is every one")
    flag("workers", defaults.workers, "reconciles at once", type=int)
    flag("resync", defaults.resync, "seconds between two complete lists", type=float)
    flag("tick", defaults.tick, "seconds between two metrics snapshots", type=float)
    flag("rate-window", defaults.rate_window, "seconds that rates are measured over", type=float)
    flag("runtime-image", defaults.runtime_image, "image of model servers that name none")
    flag("cluster-domain", defaults.cluster_domain, "DNS domain of the cluster")
    flag("mesh-principal", "", "the operator's identity in the mesh, where it has a sidecar: it asks servers with TLS")
    flag("cluster-name", defaults.cluster_name, "what notifications call the cluster")
    flag("notifications", "", "receivers, as a list in JSON or YAML, or @FILE with one", type=_receivers)
    flag("web-port", "", "port of the web page, which is off without one", type=_port)
    flag("web-host", defaults.web_host, "address of the web page, which asks nobody who they are")
    flag("web-names", "", "names that the web page may be asked for by, separated by commas")
    flag("log-format", "auto", "auto, json or text", choices=("auto", "json", "text"))
    flag("log-level", "info", "debug, info, warning or error", choices=("debug", "info", "warning", "error"))


def _apis(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip() not in ("", "none"))
    unknown = [name for name in names if name not in APIS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(APIS)}")
    return names


def _headers(text: str) -> Mapping[str, str]:
    try:
        return headers_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _receivers(text: str) -> tuple[Receiver, ...]:
    try:
        return receivers_of(text)
    except ReceiverError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _port(text: str) -> int | None:
    return int(text) if text else None


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings that the flags ask for."""
    lease = None if arguments.no_lease else Key(arguments.lease_namespace, arguments.lease_name)
    return Settings(
        namespaces=tuple(name.strip() for name in arguments.namespaces.split(",") if name.strip()),
        apis=arguments.apis,
        prometheus_url=arguments.prometheus_url,
        prometheus_credentials=Credentials(
            arguments.prometheus_token_file, arguments.prometheus_ca_file, arguments.prometheus_headers
        ),
        runtime_image=arguments.runtime_image,
        cluster_domain=arguments.cluster_domain,
        mesh_principal=arguments.mesh_principal,
        lease=lease,
        identity=arguments.identity,
        http_host=arguments.http_host,
        http_port=arguments.http_port,
        workers=arguments.workers,
        resync=arguments.resync,
        tick=arguments.tick,
        rate_window=arguments.rate_window,
        receivers=arguments.notifications,
        cluster_name=arguments.cluster_name,
        web_port=arguments.web_port,
        web_host=arguments.web_host,
        web_names=tuple(name.strip().lower() for name in arguments.web_names.split(",") if name.strip()),
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the operator until it is told to end; returns the exit status."""
    set_up(arguments.log_format, logging.getLevelNamesMapping()[arguments.log_level.upper()])
    gc.set_threshold(*COLLECT_AFTER)
    try:
        asyncio.run(operate(settings_of(arguments), exit_timeout=EXIT_TIMEOUT))
    except* LeaseLostError as lost:
        log.error("%s", lost.exceptions[0])
        return_code = 1
    except* ConfigException as error:
        log.error("%s", error.exceptions[0])
        return_code = 1
    except* Exception:
        log.exception("the operator failed")
        return_code = 1
    else:
        return_code = 0
    sys.stderr.flush()
    return return_code


def _own_identity() -> str:
    """The pod's name, so that a container that was restarted leads on at once; elsewhere one that nobody else has.

    Two processes on one host would otherwise take each other for themselves, and both lead.
    """
    host = socket.gethostname()
    return host if OWN_NAMESPACE.exists() else f"{host}_{uuid.uuid4().hex[:8]}"


def _own_namespace() -> str:
    """The namespace this process runs in, where it runs in a pod."""
    try:
        return OWN_NAMESPACE.read_text().strip()
    except OSError:
        return "slipway-system"

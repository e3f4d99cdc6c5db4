"""How calls travel to the API server: the official client's connection handling behind a one-function seam."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from yaml import YAMLError

__all__ = ["Answer", "ApiTransport", "Call", "Transport", "load_configuration"]


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request to the API server."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: Any = None
    """A JSON value."""
    content_type: str = "application/json"
    timeout: float = 30.0
    """Seconds for the whole request."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The API server's answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Carries calls; raises ``OSError``, ``TimeoutError`` or ``aiohttp.ClientError`` when there is no answer."""

    async def send(self, call: Call) -> Answer:
        """Send one request and read the whole answer."""
        ...

    async def close(self) -> None:
        """Give connections back."""
        ...


class ApiTransport:
    """The transport over ``kubernetes.aio``: its TLS, proxies and credentials, with tokens read anew as they rotate."""

    def __init__(self, configuration: Configuration) -> None:
        """Raises :class:`kubernetes.aio.config.ConfigException` for certificates that cannot be used."""
        configuration.retries = None
        # Asked for both at every single request, aiohttp reads ~/.netrc and looks for a proxy, each in a thread.
        configuration.client_session_kwargs = {"trust_env": _is_behind_proxy(str(configuration.host))}
        self._configuration = configuration
        try:
            self._client = ApiClient(configuration)
        except (OSError, ValueError) as error:
            raise ConfigException(f"the certificates of the configuration cannot be used: {error}") from error
        self._client.user_agent = "slipway"

    async def send(self, call: Call) -> Answer:
        """Send one request and read the whole answer."""
        method, url, headers, *_ = await self._client.param_serialize(
            call.method,
            call.path,
            query_params=list(call.query),
            header_params={"Accept": "application/json", "Content-Type": call.content_type},
            auth_settings=["BearerToken"],
        )
        # The body goes past that: it is JSON already, and would be copied value by value.
        response = await self._client.call_api(
            method,
            url,
            headers,
            call.body,
            _request_timeout=aiohttp.ClientTimeout(total=call.timeout, sock_connect=min(10.0, call.timeout)),
        )
        return Answer(int(response.status), response.headers, await response.read())

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _is_behind_proxy(server: str) -> bool:
    """Whether the environment names a proxy on the way to a server."""
    url = urlsplit(server)
    return url.scheme in getproxies() and not proxy_bypass(url.hostname or "")


async def load_configuration(environment: Mapping[str, str] | None = None) -> Configuration:
    """Connection settings from ``KUBECONFIG``, else from the pod's service account, else from ``~/.kube/config``.

    Raises :class:`kubernetes.aio.config.ConfigException` when none of them is usable.
    """
    environment = os.environ if environment is None else environment
    configuration = Configuration()
    explicit = environment.get("KUBECONFIG", "")
    if not explicit and environment.get("KUBERNETES_SERVICE_HOST"):
        try:
            load_incluster_config(client_configuration=configuration)
        except ConfigException as error:
            raise ConfigException(
                f"this pod has no use of its service account (is automountServiceAccountToken false?): {error}"
            ) from error
        return configuration
    paths = _kubeconfig(explicit)
    try:
        loader = await load_kube_config(config_file=paths, client_configuration=configuration)
    except (AttributeError, KeyError, OSError, TypeError, ValueError, YAMLError) as error:
        # The loader trusts the file to have the shape of a kubeconfig.
        detail = f"{type(error).__name__}: {error}"
        raise ConfigException(f"{paths} cannot be read as a kubeconfig: {detail}") from error
    _keep_fresh(configuration, loader)
    return configuration


def _kubeconfig(explicit: str) -> str:
    """The kubeconfig files to read, checked because the loader's own complaint about their absence is no help."""
    paths = explicit or str(Path("~/.kube/config").expanduser())
    if not any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path):
        raise ConfigException(f"no Kubernetes configuration: neither {paths} nor a service account exists")
    return paths


def _keep_fresh(configuration: Configuration, loader: Any) -> None:
    """Ask the kubeconfig's loader again before each call where its credentials are made by an exec plugin."""

    async def refresh(target: Configuration) -> None:
        if getattr(loader, "exec_plugin_expiry", None) is not None:
            await loader.load_and_set(target)

    configuration.refresh_api_key_hook = refresh

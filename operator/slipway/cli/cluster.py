"""The cluster that a command speaks to, with failures in users' terms."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from kubernetes.aio.config import ConfigException, list_kube_config_contexts
from yaml import YAMLError

from slipway.api import errors
from slipway.kube import failures
from slipway.kube.client import Client, RetryPolicy

__all__ = ["connected", "current_namespace", "in_users_terms"]

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
TRIES = 2
TIMEOUT = 15.0


@asynccontextmanager
async def connected() -> AsyncIterator[Client]:
    """A client of the current cluster; what goes wrong inside is raised as a SlipwayError."""
    with in_users_terms():
        async with await Client.from_environment(timeout=TIMEOUT, retry=RetryPolicy(attempts=TRIES)) as client:
            yield client


@contextmanager
def in_users_terms() -> Iterator[None]:
    """Translate the failures of API calls."""
    try:
        yield
    except failures.NotFoundError as error:
        # Only an API server that knows the kind says in an object of its own what is missing.
        message = error.message if error.reason else "the cluster does not know ModelDeployments"
        raise errors.NotFoundError(message) from error
    except failures.ConflictError as error:
        raise errors.ConflictError(error.message) from error
    except failures.InvalidError as error:
        raise errors.SlipwayError(error.message) from error
    except failures.ApiError as error:
        raise errors.ApiUnavailableError(error.message) from error
    except ConfigException as error:
        raise errors.ApiUnavailableError(str(error)) from error


def current_namespace(environment: Mapping[str, str] | None = None) -> str:
    """The namespace of the kubeconfig's current context, else the pod's own, else ``default``.

    What is wrong with a kubeconfig is told by whoever connects with it.
    """
    environment = os.environ if environment is None else environment
    if not environment.get("KUBECONFIG") and OWN_NAMESPACE.exists():
        return OWN_NAMESPACE.read_text().strip()
    paths = environment.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    if not any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path):
        return "default"
    try:
        _, active = list_kube_config_contexts(paths)
        return str(active["context"].get("namespace") or "default")
    except (AttributeError, ConfigException, KeyError, OSError, TypeError, ValueError, YAMLError):
        return "default"

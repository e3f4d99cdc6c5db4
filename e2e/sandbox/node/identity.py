"""The service account a pod acts as, and how its processes prove it.

A container would find the token at a fixed path. A local process cannot, so it gets a kubeconfig file and `KUBECONFIG`
instead, which Kubernetes clients know as well.
"""

from __future__ import annotations

import csv
from pathlib import Path

import yaml

from e2e.sandbox.controllers.client import SERVICE_ACCOUNTS, ApiClient, ApiError, Obj

TOKEN_SECONDS = 24 * 3600


def account_of(pod: Obj) -> str:
    """The name of the pod's service account."""
    return str(pod["spec"].get("serviceAccountName") or "default")


async def account_token(
    client: ApiClient, pod: Obj, tokens_file: Path | None, *, seconds: int = TOKEN_SECONDS, audience: str = ""
) -> str:
    """A token of the pod's service account: a static one if the file knows the account, else one asked for.

    Empty when the server has no such thing. Raises ApiError when it refuses for another reason.
    """
    namespace, account = pod["metadata"]["namespace"], account_of(pod)
    static = _static_tokens(tokens_file).get(f"system:serviceaccount:{namespace}:{account}")
    if static is not None:
        return static
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds, "audiences": [audience] if audience else []},
    }
    try:
        answer = await client.request("POST", SERVICE_ACCOUNTS.path(namespace, account, "token"), body)
    except ApiError as error:
        if error.code in (404, 405):
            return ""
        raise
    return str(answer["status"]["token"])


def _static_tokens(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    with path.open(newline="") as lines:
        return {row[1]: row[0] for row in csv.reader(lines) if len(row) > 1}


async def write_pod_kubeconfig(client: ApiClient, pod: Obj, tokens_file: Path | None, folder: Path) -> Path | None:
    """Write the pod's kubeconfig below `folder`; None when the pod is not to have one or there is no token."""
    if pod["spec"].get("automountServiceAccountToken") is False and not _mounts_token(pod):
        return None
    token = await account_token(client, pod, tokens_file)
    if not token:
        return None
    cluster = {"server": client.access.url, "certificate-authority": client.access.ca_file}
    context = {"cluster": "sandbox", "user": account_of(pod), "namespace": pod["metadata"]["namespace"]}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": {key: value for key, value in cluster.items() if value}}],
        "users": [{"name": account_of(pod), "user": {"token": token}}],
        "contexts": [{"name": "sandbox", "context": context}],
        "current-context": "sandbox",
    }
    return _write_private(folder / "kubeconfig", yaml.safe_dump(content, sort_keys=False))


def _mounts_token(pod: Obj) -> bool:
    """Whether the pod asks for a token by a volume of its own."""
    projections = [volume["projected"] for volume in pod["spec"].get("volumes") or () if "projected" in volume]
    return any("serviceAccountToken" in source for item in projections for source in item.get("sources") or ())


def _write_private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path

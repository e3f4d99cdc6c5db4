"""The API server of a sandbox: the simulated one, or etcd and kube-apiserver from an envtest folder."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from .children import START_SECONDS, Child, ChildFailedError
from .ports import free_port
from .tokens import TOKENS_FILE, User, write_tokens

HOST = "127.0.0.1"
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}
"""Requests of service accounts are recorded, as the simulated API server does."""


@dataclass(frozen=True)
class ApiEndpoint:
    """Where an API server is and which authority vouches for it."""

    url: str
    ca_file: Path


async def start_sandbox_api(
    folder: Path, users: tuple[User, ...], children: list[Child], assets: Path | None = None
) -> ApiEndpoint:
    """Start the simulated API server with an empty cluster."""
    write_tokens(folder / TOKENS_FILE, users, with_uid=False)
    shutil.rmtree(folder / "apiserver", ignore_errors=True)
    (folder / "apiserver").mkdir()
    return await resume_sandbox_api(folder, children, port=0)


async def resume_sandbox_api(folder: Path, children: list[Child], *, port: int) -> ApiEndpoint:
    """Start the simulated API server with the objects it had when it was stopped."""
    data = folder / "apiserver"
    argv = [sys.executable, "-m", "e2e.sandbox.apiserver", "--host", HOST, "--port", str(port), "--keep"]
    argv += ["--tokens", str(folder / TOKENS_FILE), "--data-dir", str(data)]
    child = await Child.start("apiserver", argv, folder / "logs")
    children.append(child)
    answer = await child.ready_line()
    return ApiEndpoint(answer["url"], data / "ca.crt")


async def start_envtest(
    folder: Path, users: tuple[User, ...], children: list[Child], assets: Path | None
) -> ApiEndpoint:
    """Start the real etcd and kube-apiserver of `assets`, RBAC on, users by static token."""
    if assets is None:
        raise ValueError("the folder with etcd and kube-apiserver is missing")
    tokens = folder / TOKENS_FILE
    write_tokens(tokens, users, with_uid=True)
    etcd_port, peer_port, port = (free_port(HOST) for _ in range(3))
    etcd_url, peer_url = f"http://{HOST}:{etcd_port}", f"http://{HOST}:{peer_port}"
    etcd = [str(assets / "etcd"), "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync"]
    etcd += ["--listen-client-urls", etcd_url, "--advertise-client-urls", etcd_url]
    etcd += ["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url]
    etcd += ["--initial-cluster", f"default={peer_url}"]
    children.append(await Child.start("etcd", etcd, folder / "logs"))
    children[-1].drain()
    certificates = folder / "certificates"
    certificates.mkdir(exist_ok=True)
    signing_key = _signing_key(certificates / "service-accounts.key")
    audit = folder / "apiserver"
    audit.mkdir(exist_ok=True)
    (audit / "policy.json").write_text(json.dumps(_AUDIT_POLICY))
    server = [
        str(assets / "kube-apiserver"),
        f"--etcd-servers={etcd_url}",
        f"--cert-dir={certificates}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={port}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={signing_key}",
        f"--service-account-signing-key-file={signing_key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        f"--audit-policy-file={audit / 'policy.json'}",
        f"--audit-log-path={audit / 'audit.log'}",
    ]
    child = await Child.start("apiserver", server, folder / "logs")
    child.drain()
    children.append(child)
    endpoint = ApiEndpoint(f"https://{HOST}:{port}", certificates / "apiserver.crt")
    await _wait_ready(endpoint, users[0].token, child)
    return endpoint


async def _wait_ready(endpoint: ApiEndpoint, token: str, child: Child) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with asyncio.timeout(START_SECONDS):
            while child.process.returncode is None:
                if endpoint.ca_file.exists() and await _answers(endpoint, headers):
                    return
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise ChildFailedError(f"kube-apiserver was not ready in time:\n{child.tail()}") from None
    raise ChildFailedError(f"kube-apiserver ended:\n{child.tail()}")


async def _answers(endpoint: ApiEndpoint, headers: dict[str, str]) -> bool:
    try:
        context = ssl.create_default_context(cafile=str(endpoint.ca_file))
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{endpoint.url}/readyz", ssl=context) as response,
        ):
            return response.status == 200
    except (aiohttp.ClientError, OSError):
        return False


def _signing_key(path: Path) -> Path:
    if not path.exists():
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        path.touch(mode=0o600)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    return path

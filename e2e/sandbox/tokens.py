"""Users of a sandbox's API server, known by static tokens."""

from __future__ import annotations

import csv
import io
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ADMIN = "sandbox-admin"
TOKENS_FILE = "tokens.csv"


@dataclass(frozen=True)
class User:
    """A user name, its groups and its token; `system:serviceaccount:NAMESPACE:NAME` stands for a service account."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16))

    @classmethod
    def service_account(cls, namespace: str, name: str) -> User:
        """The user a service account is; pods with this account get the token."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        return cls(f"system:serviceaccount:{namespace}:{name}", groups)


def write_tokens(path: Path, users: tuple[User, ...], *, with_uid: bool) -> None:
    """Write a token file; a real kube-apiserver wants a uid between user and groups."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for number, user in enumerate(users):
        middle = [str(number)] if with_uid else []
        writer.writerow([user.token, user.name, *middle, ",".join(user.groups)])
    path.touch(mode=0o600)
    path.write_text(text.getvalue())


def write_kubeconfig(path: Path, url: str, ca_file: Path, user: User) -> None:
    """Write a kubeconfig file for one user."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": {"server": url, "certificate-authority": str(ca_file)}}],
        "users": [{"name": user.name, "user": {"token": user.token}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": user.name, "namespace": "default"}}],
        "current-context": "sandbox",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))

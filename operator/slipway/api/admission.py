"""What the server lets in: settings of tenants and of the answer cache that would do nothing, or not what they say."""

from collections.abc import Iterator

from slipway.api.problems import Problem
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.versions import Tenants

__all__ = ["RESERVED_TENANT", "ineffective_admission"]

RESERVED_TENANT = "default"
"""The server's metrics call all tenants so that have no share of their own."""


def ineffective_admission(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """Every such setting."""
    tenants, cache = spec.runtime.tenants, spec.runtime.cache
    yield from _tenants(tenants)
    if tenants.claim and not spec.traffic.auth.jwt.issuer:
        text = "needs traffic.auth.jwt.issuer: only the claims of a token that the mesh has verified name a tenant"
        yield _problem("tenants.claim", text)
    if cache.max_bytes.value > 0 and cache.ttl.seconds <= 0:
        yield _problem("cache.ttl", "must be more than 0 for a cache that has maxBytes")


def _tenants(tenants: Tenants) -> Iterator[Problem]:
    if not tenants.header and tenants != Tenants():
        yield _problem("tenants.header", "is required: it is the header that names the tenant")
    for index, override in enumerate(tenants.overrides):
        if override.name == RESERVED_TENANT:
            text = f"cannot be {RESERVED_TENANT!r}, which stands for all tenants without an entry"
            yield _problem(f"tenants.overrides[{index}].name", text)


def _problem(field: str, message: str) -> Problem:
    return Problem(f"spec.runtime.{field}", "InvalidSpec", message)

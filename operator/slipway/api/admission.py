"""What the server lets in: settings of tenants and of the answer cache that would do nothing, or not what they say."""

from collections.abc import Iterator

from slipway.api.problems import Problem
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.versions import Cache, Tenants

__all__ = ["RESERVED_TENANT", "ineffective_admission"]

RESERVED_TENANT = "default"
"""The server's metrics call all tenants so that have no share of their own."""
NO_TIME = "must be more than 0 for a cache that has maxBytes"


def ineffective_admission(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """Every such setting."""
    tenants, cache = spec.runtime.tenants, spec.runtime.cache
    yield from _tenants(tenants)
    if tenants.claim and not spec.traffic.auth.jwt.issuer:
        text = "needs traffic.auth.jwt.issuer: only the claims of a token that the mesh has verified name a tenant"
        yield _problem("tenants.claim", text)
    if _kept_for_no_time(cache):
        yield _problem("cache.ttl", NO_TIME)
    for index, version in enumerate(spec.versions):
        own = version.runtime.cache
        if own is not None and _kept_for_no_time(_merged(cache, own)):
            yield Problem(f"spec.versions[{index}].runtime.cache", "InvalidSpec", f"ttl {NO_TIME}")


def _merged(cache: Cache, own: Cache) -> Cache:
    """The cache of a version's servers: what the version says, and the rest from spec.runtime."""
    return cache.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})


def _kept_for_no_time(cache: Cache) -> bool:
    return cache.max_bytes.value > 0 and cache.ttl.seconds <= 0


def _tenants(tenants: Tenants) -> Iterator[Problem]:
    if not tenants.header and tenants != Tenants():
        yield _problem("tenants.header", "is required: it is the header that names the tenant")
    for index, override in enumerate(tenants.overrides):
        if override.name == RESERVED_TENANT:
            text = f"cannot be {RESERVED_TENANT!r}, which stands for all tenants without an entry"
            yield _problem(f"tenants.overrides[{index}].name", text)


def _problem(field: str, message: str) -> Problem:
    return Problem(f"spec.runtime.{field}", "InvalidSpec", message)

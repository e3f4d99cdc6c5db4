"""Every object that moves traffic, stored by an API server: applied once it stays as it is, and what goes is gone."""

import time
from typing import Any

import pytest
from slipway.api.revisions import revision_of
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Role, VersionStatus, VersionWeight
from slipway.kube.apply import Applied, Applier, Operation, Owner
from slipway.kube.client import Client
from slipway.kube.kinds import HTTP_ROUTE, SERVICE, VIRTUAL_SERVICE
from slipway.kube.metadata import key_of, uid_of
from slipway.resources import Identity, RenderOptions, desired

from tests.kube.test_against_a_server import declared, filled

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

VERSIONS = [{"name": name, "uri": f"file:///models/{name}"} for name in ("v1", "v2")]
FULL: dict[str, Any] = {
    "hosts": ["a.example.com", "b.example.com"],
    "gateways": ["edge/public", "edge/private"],
    "sessionAffinity": {"cookie": "user"},
    "mirror": {"version": "v2", "percent": 5},
    "resilience": {"timeout": "90m", "retries": {"attempts": 2}, "rateLimit": {"requestsPerSecond": 2.5}},
    "auth": {"jwt": {"issuer": "https://issuer", "jwksUri": "https://issuer/keys", "audiences": ["us"]}},
}
SECTIONS: dict[str, dict[str, Any]] = {
    "istio": FULL,
    "delegate": {"virtualService": {"delegate": True}},
    "gateway-api": {"provider": "gateway-api", **{name: FULL[name] for name in ("hosts", "gateways", "mirror")}},
    "none": {"provider": "none"},
}


def wanted(raw: dict[str, Any], traffic: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The children in the middle of a canary."""
    key = key_of(raw)
    spec = {"versions": VERSIONS, "serve": "v2", "traffic": traffic}
    revisions = [revision_of(key.name, spec, version["name"]) for version in VERSIONS]
    entries = tuple(
        VersionStatus(
            name=revision.version.name,
            revision=revision.name,
            role=role,
            ready_replicas=1,
            subset=True,
            weight=VersionWeight(intended=weight),
        )
        for revision, role, weight in zip(revisions, (Role.STABLE, Role.CANDIDATE), (75, 25), strict=True)
    )
    return desired(
        Identity(key.name, key.namespace, uid_of(raw)),
        ModelDeploymentSpec.from_wire(spec),
        ModelDeploymentStatus(versions=entries),
        {revision.name: revision for revision in revisions},
        RenderOptions("slipway-runtime:0.1.0"),
    )


async def apply(client: Client, raw: dict[str, Any], traffic: dict[str, Any]) -> Applied:
    """Apply with a cache that was filled a moment ago."""
    cache = await filled(client, key_of(raw).namespace)
    return await Applier(client, cache).apply(Owner(key_of(raw), uid_of(raw)), wanted(raw, traffic), time.time())


@pytest.mark.parametrize("name", SECTIONS)
async def test_a_second_apply_writes_nothing(cluster_client, namespace, name):
    raw = await declared(cluster_client, namespace)
    first = await apply(cluster_client, raw, SECTIONS[name])
    assert first.refused == {}
    again = await apply(cluster_client, raw, SECTIONS[name])
    assert ([str(step) for step in again.done], again.drifts, again.refused) == ([], [], {})


async def test_a_setting_that_goes_takes_its_objects_and_fields_along(cluster_client, namespace):
    """Research case T69: nothing is left of hosts, gateways and policies."""
    raw = await declared(cluster_client, namespace)
    await apply(cluster_client, raw, SECTIONS["istio"])
    applied = await apply(cluster_client, raw, SECTIONS["delegate"])
    gone = {step.kind.name for step in applied.done if step.operation is Operation.DELETE}
    assert gone == {"RequestAuthentication", "AuthorizationPolicy", "EnvoyFilter"}
    stored = await cluster_client.get(VIRTUAL_SERVICE, namespace, "m")
    assert set(stored["spec"]) == {"http"}
    assert all("mirror" not in route for route in stored["spec"]["http"])


async def test_another_provider_comes_before_the_old_one_goes(cluster_client, namespace):
    raw = await declared(cluster_client, namespace)
    await apply(cluster_client, raw, {})
    applied = await apply(cluster_client, raw, SECTIONS["gateway-api"])
    steps = [(step.operation, step.kind) for step in applied.done]
    created, deleted = (Operation.CREATE, HTTP_ROUTE), (Operation.DELETE, VIRTUAL_SERVICE)
    assert steps.index((Operation.CREATE, SERVICE)) < steps.index(created) < steps.index(deleted)
    back = await apply(cluster_client, raw, {})
    steps = [(step.operation, step.kind) for step in back.done]
    assert steps.index((Operation.CREATE, VIRTUAL_SERVICE)) < steps.index((Operation.DELETE, HTTP_ROUTE))
    assert steps.index((Operation.DELETE, HTTP_ROUTE)) < steps.index((Operation.DELETE, SERVICE))

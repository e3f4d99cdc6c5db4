"""Counters of the server as a whole: what tenants sent, and what the answer cache did for a model."""

from __future__ import annotations

from slipway_runtime.metrics.exposition import Registry, Value
from slipway_runtime.metrics.sheet import Sheet
from slipway_runtime.serving.tenants import TenantCounts


def tenant_counters(sheet: Sheet, tenant: str) -> TenantCounts:
    """The series of a tenant; there are as many as the rules have entries, whatever names clients make up."""
    registry = Registry({"tenant": tenant}, sheet)

    def series(result: str) -> Value:
        return registry.value(
            "counter",
            "slipway_tenant_requests_total",
            "Requests by tenant (default: those without an entry) and by whether their rate let them in.",
            result=result,
        )

    return TenantCounts(series("admitted"), series("limited"))

"""What is counted under one name, version and revision, over all loads of that model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slipway_runtime.metrics.exposition import render
from slipway_runtime.metrics.recorder import ServingMetrics
from slipway_runtime.metrics.sheet import Sheet
from slipway_runtime.metrics.statistics import ModelStatistics
from slipway_runtime.serving.service import ModelService

Identity = tuple[str, str, str]


@dataclass
class Account:
    """Metrics and statistics; ``busy_before`` are the executor seconds of loads that are gone."""

    metrics: ServingMetrics
    statistics: ModelStatistics
    busy_before: float = 0.0


class Accounts:
    """All accounts of a server, on one sheet. They outlive the models: counters never fall."""

    def __init__(self, sheet: Sheet | None = None) -> None:
        self.sheet = sheet if sheet is not None else Sheet()
        self._accounts: dict[Identity, Account] = {}

    def service(self, name: str, version: str, revision: str) -> ModelService:
        """A service that is not loaded yet and goes on counting where an earlier one of its identity stopped."""
        identity = name, version, revision
        account = self._accounts.get(identity)
        if account is None:
            account = self._accounts[identity] = Account(
                ServingMetrics(name, version, revision, self.sheet), ModelStatistics(self.sheet, name, version)
            )
        return ModelService(name, version, revision, account.metrics, account.statistics)

    def close(self, service: ModelService) -> None:
        """The service is about to be released: keep what only it knows."""
        self._account(service).busy_before += service.busy_seconds()

    def exposition(self, services: Iterable[ModelService]) -> bytes:
        """All metrics in Prometheus' format; ``services`` are those that still exist."""
        self.publish(services)
        return render(self.sheet)

    def publish(self, services: Iterable[ModelService]) -> None:
        """Bring the sheet up to date with what is only known by asking."""
        busy = {identity: account.busy_before for identity, account in self._accounts.items()}
        for service in services:
            busy[_identity(service)] += service.busy_seconds()
        for identity, seconds in busy.items():
            self._accounts[identity].metrics.publish_busy(seconds)

    def _account(self, service: ModelService) -> Account:
        return self._accounts[_identity(service)]


def _identity(service: ModelService) -> Identity:
    return service.name, service.version, service.revision

"""The connection to Prometheus."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prometheus_api_client import PrometheusApiClientException, PrometheusConnect
from requests import RequestException, Timeout, exceptions

from slipway.metrics.credentials import Credentials
from slipway.metrics.custom import CustomQueries
from slipway.metrics.mesh import mesh_query, workloads_in
from slipway.metrics.queries import DOWN, gateway_query, gpu_query, server_queries
from slipway.metrics.session import BoundedSession
from slipway.metrics.snapshot import Answers, Snapshot, read_answers
from slipway.metrics.traces import AnswerError, parse

__all__ = ["PrometheusSource"]

LONGEST_ERROR = 300
SCRAPES_OF_A_RATE = 2.5
FAILURES = (
    TimeoutError, RequestException, PrometheusApiClientException, AnswerError, ValueError, KeyError, TypeError,
    IndexError, AttributeError, RecursionError, MemoryError, OverflowError,
)  # fmt: skip
"""What asking Prometheus, or something that pretends to be one, can end in."""


class PrometheusSource:
    """Reads Prometheus: eight queries per snapshot, however many ModelDeployments there are, a ninth where some are
    served by Triton or a custom server, and one per expression that a user has written into a check.

    Times are in seconds. ``rate_window`` is what rates are taken over, ``evidence_range`` how far raw scrapes reach
    back, ``timeout`` the longest a snapshot may take; ``scrape_interval`` is assumed where no scrapes have been seen.
    """

    def __init__(
        self,
        url: str,
        *,
        rate_window: float = 60.0,
        evidence_range: float = 300.0,
        timeout: float = 10.0,
        credentials: Credentials | None = None,
        scrape_interval: float = 15.0,
    ) -> None:
        self._session = BoundedSession(timeout, credentials=credentials)
        self._connection = PrometheusConnect(url=url.rstrip("/"), session=self._session, timeout=timeout)
        self._queries = server_queries(evidence_range)
        self._evidence_range = evidence_range
        self._rate_window = rate_window
        self._scrape_interval = scrape_interval
        self._timeout = timeout
        self._seen_interval = 0.0
        self._caveat = ""
        self._reading = threading.Lock()
        self._custom = CustomQueries(url, credentials=credentials)

    @property
    def _gateway_window(self) -> float:
        """Seconds that hold two scrapes, jitter included: a rate over fewer is none."""
        return max(self._rate_window, SCRAPES_OF_A_RATE * self._seen_interval)

    def want(self, namespace: str, model: str, queries: Sequence[str]) -> None:
        """From now on these expressions are asked for a ModelDeployment, and no others."""
        self._custom.want((namespace, model), queries)

    async def snapshot(self, now: float) -> Snapshot:
        """What Prometheus knows at ``now`` (seconds since the epoch); unavailable, with the cause, where it fails."""
        snapshot = await self._fixed(now)
        return replace(snapshot, queries=await self._custom.refresh(now)) if snapshot.available else snapshot

    async def _fixed(self, now: float) -> Snapshot:
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.to_thread(self._read, now)
        except FAILURES as error:
            return self._unavailable(now, self._cause(error))

    async def answers(self, now: float) -> list[tuple[str, Sequence[Any]]] | str:
        """Every query that a snapshot asks with the series that answer it; a text where Prometheus fails."""
        queries = (*self._queries, gateway_query(self._gateway_window), gpu_query(), DOWN)
        try:
            answers = [(query, await asyncio.to_thread(self._asked, query, now)) for query in queries]
            wanted = workloads_in(parse(answers[len(self._queries) - 1][1]))
            if wanted:
                query = mesh_query(wanted, self._evidence_range)
                answers.append((query, await asyncio.to_thread(self._asked, query, now)))
            return answers
        except FAILURES as error:
            return f"{self._connection.prometheus_host}: {self._cause(error)}"

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()
        self._custom.close()

    def _read(self, now: float) -> Snapshot:
        if not self._reading.acquire(blocking=False):
            raise AnswerError("the previous snapshot is still being read")
        try:
            self._caveat = ""
            servers = tuple(self._ask(query, now) for query in self._queries)
            gateway = self._ask(gateway_query(self._gateway_window), now)
            mesh = self._ask_mesh(servers, now)
            gpus, down = self._ask(gpu_query(), now), self._ask(DOWN, now)
            answers = Answers(servers, gpus, down, gateway, mesh, self._caveat)
            snapshot = read_answers(answers, now, self._rate_window, self._scrape_interval)
            self._seen_interval = max((view.scrape_interval for view in snapshot.views.values()), default=0.0)
            return snapshot
        finally:
            self._reading.release()

    def _ask_mesh(self, servers: Sequence[Any], now: float) -> object:
        """What proxies count for the servers that do not do so well enough; the last query tells which there are."""
        wanted = workloads_in(parse(servers[-1]))
        return self._ask(mesh_query(wanted, self._evidence_range), now) if wanted else ()

    def _ask(self, query: str, now: float) -> object:
        answer: object = self._connection.custom_query(query, params={"time": f"{now:.3f}"})
        self._caveat = self._caveat or self._session.caveat
        return answer

    def _asked(self, query: str, now: float) -> Sequence[Any]:
        """The series that answer a query; raises AnswerError where it is something else."""
        answer = self._ask(query, now)
        parse(answer)
        return answer if isinstance(answer, list) else []

    def _cause(self, error: Exception) -> str:
        match error:
            case TimeoutError() | Timeout():
                return f"no answer within {self._timeout:g}s"
            case exceptions.ContentDecodingError():
                return str(error)[:LONGEST_ERROR]
            case exceptions.ConnectionError():
                # The library's own text holds the query, its time and an address in memory: another one at every try.
                return f"no connection to {self._connection.prometheus_host}"
            case exceptions.JSONDecodeError():
                return "the answer is not Prometheus' JSON"
            case KeyError() | TypeError() | IndexError() | AttributeError() | RecursionError() | MemoryError():
                return "the answer is JSON, but not of Prometheus' form"
        return (str(error) or type(error).__name__)[:LONGEST_ERROR]

    def _unavailable(self, now: float, cause: str) -> Snapshot:
        return Snapshot(now, False, cause[:LONGEST_ERROR], self._scrape_interval)

"""The users' own expressions: one query each, apart from everything else, so that a slow one harms nobody."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_api_client import PrometheusApiClientException, PrometheusConnect
from requests import RequestException, Timeout
from requests.exceptions import ContentDecodingError, JSONDecodeError

from slipway.api.samples import Quality, Sample
from slipway.metrics.credentials import Credentials
from slipway.metrics.session import BoundedSession

__all__ = ["CustomQueries"]

LONGEST_ERROR = 300
LONGEST_ANSWER = 1024 * 1024
"""Bytes; users ask for one number, and what they ask must not cost everybody else the memory."""
UNREADABLE = (
    ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, MemoryError, OverflowError,
)  # fmt: skip
Owner = tuple[str, str]
"""Namespace and name of a ModelDeployment."""


class CustomQueries:
    """Answers to what ModelDeployments want to know, brought up to date with every snapshot.

    At most ``per_snapshot`` queries are asked at a time, those whose turn was longest ago first.
    """

    def __init__(
        self,
        url: str,
        *,
        credentials: Credentials | None = None,
        timeout: float = 5.0,
        per_snapshot: int = 32,
        patience: float = 2.0,
    ) -> None:
        """``timeout`` (seconds) is for one query, ``patience`` how long a snapshot waits for all of them."""
        self._session = BoundedSession(timeout, LONGEST_ANSWER, credentials)
        self._connection = PrometheusConnect(url=url.rstrip("/"), session=self._session, timeout=timeout)
        self._timeout = timeout
        self._per_snapshot = per_snapshot
        self._patience = patience
        self._wanted: dict[Owner, tuple[str, ...]] = {}
        self._answers: dict[str, Sample] = {}
        self._asked: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    def want(self, owner: Owner, queries: Sequence[str]) -> None:
        """From now on these are asked for a ModelDeployment, and no others."""
        if queries:
            self._wanted[owner] = tuple(queries)
        else:
            self._wanted.pop(owner, None)

    async def refresh(self, now: float) -> Mapping[str, Sample]:
        """Ask what is due and give the answers known by then; ``now`` in seconds since the epoch.

        Answers that take longer than the patience come with a later refresh.
        """
        wanted = {query for queries in self._wanted.values() for query in queries}
        self._answers = {query: sample for query, sample in self._answers.items() if query in wanted}
        self._asked = {query: at for query, at in self._asked.items() if query in wanted}
        if wanted and (self._task is None or self._task.done()):
            due = sorted(wanted, key=lambda query: (self._asked.get(query, -math.inf), query))[: self._per_snapshot]
            self._task = asyncio.create_task(asyncio.to_thread(self._read, due, now))
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=self._patience)
        return dict(self._answers)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _read(self, queries: Sequence[str], now: float) -> None:
        for query in queries:
            self._asked[query] = now
            self._answers[query] = self._answer(query, now)

    def _answer(self, query: str, now: float) -> Sample:
        try:
            result = self._connection.custom_query(query, params={"time": f"{now:.3f}"})
            sample, caveat = _single(result, now), self._session.caveat
            if not (caveat and sample.ok):
                return sample
            reason = f"the answer may be incomplete: {caveat}"
            return Sample(sample.value, Quality.PARTIAL, now, reason[:LONGEST_ERROR])
        except Timeout:
            reason = f"no answer within {self._timeout:g}s"
        except (PrometheusApiClientException, ContentDecodingError) as error:
            reason = str(error)
        except JSONDecodeError:
            reason = "the answer is not Prometheus' JSON"
        except RequestException:
            reason = "no connection to Prometheus"
        except UNREADABLE as error:
            reason = f"an answer of an unexpected form: {type(error).__name__}"
        return Sample(0.0, Quality.INVALID, now, reason[:LONGEST_ERROR])


def _single(result: Any, now: float) -> Sample:
    """The one value of an instant vector or a scalar."""
    if not result:
        return Sample(0.0, Quality.MISSING, now, "the expression has no value")
    if isinstance(result[0], Mapping):
        if len(result) > 1:
            return Sample(0.0, Quality.INVALID, now, f"the expression has {len(result)} values, aggregate them to one")
        result = result[0]["value"]
    value = float(result[1])
    if not math.isfinite(value):
        return Sample(0.0, Quality.INVALID, now, f"the expression's value is {value}")
    return Sample(value, Quality.OK, now)

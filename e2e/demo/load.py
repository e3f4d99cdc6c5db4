"""An open-loop load generator: requests leave on schedule whether or not earlier ones were answered.

A closed loop would slow down with a slow server and so hide it (coordinated omission); latency here is measured from
the moment at which the request was due.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import aiohttp
import numpy as np

__all__ = ["Answer", "LoadGenerator", "summarise_latency"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One request as its sender saw it."""

    at: float
    """When it was due, in seconds since the epoch."""
    seconds: float
    """From due to answered."""
    code: int
    """HTTP status; 0 when there was no answer at all."""
    version: str
    """The version that answered, from the x-model-version header."""
    right: bool | None
    """Whether the predicted digit is the label; None without a prediction."""
    error: str = ""


@dataclass
class LoadGenerator:
    """Sends scans through the gateway at a rate that may change with time."""

    url: str
    """The gateway."""
    host: str
    """Host header: the in-mesh name of the Service."""
    model: str
    rate: Callable[[float], float]
    """Requests per second by seconds since the start."""
    scans: np.ndarray
    labels: np.ndarray
    answers: list[Answer] = field(default_factory=list)
    sent: int = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Send until told to stop, then wait for the last answers."""
        timeout = aiohttp.ClientTimeout(total=30)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session, asyncio.TaskGroup() as group:
            begun = time.time()
            due = begun
            for row in self._rows():
                due += 1 / max(self.rate(due - begun), 0.1)
                delay = due - time.time()
                if delay > 0 and await _stopped_within(stop, delay):
                    return
                if stop.is_set():
                    return
                self.sent += 1
                group.create_task(self._send(session, row, due))

    def _rows(self) -> Iterator[int]:
        order = np.random.default_rng(11)
        while True:
            yield from (int(row) for row in order.permutation(len(self.scans)))

    async def _send(self, session: aiohttp.ClientSession, row: int, due: float) -> None:
        tensor = {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": self.scans[row].tolist()}
        code, version, right, error = 0, "", None, ""
        try:
            async with session.post(
                f"{self.url}/v2/models/{self.model}/infer", json={"inputs": [tensor]}, headers={"Host": self.host}
            ) as response:
                code, version = response.status, response.headers.get("x-model-version", "")
                if code == 200:
                    body = await response.json()
                    logits = body["outputs"][0]["data"]
                    right = max(range(len(logits)), key=logits.__getitem__) == int(self.labels[row])
                else:
                    error = (await response.text())[:200]
        except (aiohttp.ClientError, TimeoutError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        self.answers.append(Answer(due, time.time() - due, code, version, right, error))


async def _stopped_within(stop: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True


def summarise_latency(answers: Sequence[Answer], quantile: float) -> float:
    """The quantile of the latencies in seconds; NaN without any."""
    times = sorted(answer.seconds for answer in answers)
    return times[min(len(times) - 1, math.ceil(quantile * len(times)) - 1)] if times else math.nan

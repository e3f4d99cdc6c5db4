"""Requests at a fixed rate, whatever the server does: what waits because the server is slow counts as slow."""

import asyncio
import math
import time
from dataclasses import dataclass, field

__all__ = ["Answer", "SteadyLoad", "percentile"]

_LENGTH = b"content-length: "


@dataclass(frozen=True, slots=True)
class Answer:
    """One request: when it was due (monotonic seconds), how long after that its answer came, and what it was."""

    due: float
    seconds: float
    status: int
    body: bytes = b""


@dataclass
class SteadyLoad:
    """Sends the same request over kept connections, `rate` times a second, until told to stop.

    With an infinite rate, every connection sends its next request when it has the answer to the last.

    A connection that the server closes in order, with "Connection: close", is opened anew; a request that gets no
    answer has the status 0.
    """

    host: str
    port: int
    target: str
    body: bytes
    rate: float
    connections: int = 16
    method: str = "POST"
    answers: list[Answer] = field(default_factory=list)
    _stop: bool = False
    _goal: int = 0
    _reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Send until `stop`; every request has been answered, or has failed, when this ends."""
        queue: asyncio.Queue[float | None] = asyncio.Queue()
        workers = [asyncio.create_task(self._work(queue)) for _ in range(self.connections)]
        begun, sent = time.monotonic(), 0
        while not self._stop and self.rate != math.inf:
            now = time.monotonic()
            while begun + sent / self.rate <= now:
                queue.put_nowait(begun + sent / self.rate)
                sent += 1
            await asyncio.sleep(begun + sent / self.rate - now)
        for _ in workers:
            queue.put_nowait(None)
        await asyncio.gather(*workers)

    def stop(self) -> None:
        """Send no more."""
        self._stop = True

    async def answered(self, count: int) -> None:
        """Wait until so many requests have been answered, or have failed."""
        self._goal = count
        self._reached.clear()
        if len(self.answers) < count:
            await self._reached.wait()

    def between(self, begin: float, end: float) -> list[Answer]:
        """The requests that were due in that time (monotonic seconds)."""
        return [answer for answer in self.answers if begin <= answer.due < end]

    async def _due(self, queue: asyncio.Queue[float | None]) -> float | None:
        if self.rate != math.inf:
            return await queue.get()
        return None if self._stop else time.monotonic()

    def _record(self, answer: Answer) -> None:
        self.answers.append(answer)
        if len(self.answers) >= self._goal:
            self._reached.set()

    async def _work(self, queue: asyncio.Queue[float | None]) -> None:
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        lines = f"{self.method} {self.target} HTTP/1.1", f"Host: {self.host}", f"Content-Length: {len(self.body)}"
        request = ("\r\n".join(lines) + "\r\n\r\n").encode() + self.body
        while (due := await self._due(queue)) is not None:
            try:
                if streams is None:
                    streams = await asyncio.open_connection(self.host, self.port)
                reader, writer = streams
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(_LENGTH)[2].partition(b"\r")[0])
                body = await reader.readexactly(length)
                self._record(Answer(due, time.monotonic() - due, int(head[9:12]), body))
                if b"connection: close" in head.lower():
                    writer.close()
                    streams = None
            except (OSError, asyncio.IncompleteReadError) as error:
                self._record(Answer(due, time.monotonic() - due, 0, repr(error).encode()))
                streams = None
        if streams is not None:
            streams[1].close()


def percentile(answers: list[Answer], share: float) -> float:
    """Seconds within which that share of the requests was answered; NaN without requests."""
    ordered = sorted(answer.seconds for answer in answers)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")

"""Probes: is the process up, ready, alive?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from e2e.sandbox.controllers.client import Obj

Exec = Callable[[Sequence[str], float], Awaitable[tuple[int, str]]]


@dataclass(frozen=True)
class ProbeTarget:
    """Where a container's probes and hooks go."""

    address: str
    ports: Mapping[str, int]
    """Named container ports."""
    http: aiohttp.ClientSession
    run: Exec
    """Runs a command in the container's environment within so many seconds."""

    def port(self, value: int | str) -> int:
        """A port by number or name; raises LookupError for an unknown name."""
        if isinstance(value, int):
            return value
        if value in self.ports:
            return self.ports[value]
        if value.isdigit():
            return int(value)
        raise LookupError(f"no container port is named {value!r}")


async def check(probe: Obj, target: ProbeTarget) -> tuple[bool, str]:
    """Carry out one probe; returns whether it succeeded and what to tell when not."""
    seconds = float(probe.get("timeoutSeconds") or 1)
    try:
        return await act(probe, target, seconds)
    except TimeoutError:
        return False, f"context deadline exceeded after {seconds:g} s"
    except (OSError, aiohttp.ClientError, LookupError) as error:
        return False, str(error) or type(error).__name__


async def act(action: Obj, target: ProbeTarget, seconds: float) -> tuple[bool, str]:
    """Carry out the action of a probe or hook within so many seconds."""
    if action.get("httpGet"):
        return await _http_get(action["httpGet"], target, seconds)
    if action.get("tcpSocket"):
        host = action["tcpSocket"].get("host") or target.address
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, target.port(action["tcpSocket"]["port"]))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True, ""
    if action.get("grpc"):
        return await _grpc(action["grpc"], target, seconds)
    if action.get("exec"):
        code, output = await target.run(action["exec"].get("command") or [], seconds)
        return code == 0, output
    if action.get("sleep"):
        await asyncio.sleep(action["sleep"]["seconds"])
        return True, ""
    raise LookupError(f"no action known in {sorted(action)}")


async def _http_get(action: Obj, target: ProbeTarget, seconds: float) -> tuple[bool, str]:
    host = action.get("host") or target.address
    scheme = str(action.get("scheme") or "HTTP").lower()
    path = "/" + str(action.get("path") or "/").removeprefix("/")
    url = f"{scheme}://{host}:{target.port(action['port'])}{path}"
    headers = {entry["name"]: entry["value"] for entry in action.get("httpHeaders") or ()}
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with target.http.get(url, headers=headers, timeout=timeout, ssl=False, allow_redirects=False) as response:
        if 200 <= response.status < 400:
            return True, ""
        return False, f"HTTP probe failed with statuscode: {response.status}"


async def _grpc(action: Obj, target: ProbeTarget, seconds: float) -> tuple[bool, str]:
    """grpc.health.v1.Health/Check with its two one-field messages written by hand."""
    try:
        import grpc.aio
    except ImportError:
        return False, "gRPC probes need the package grpcio"
    name = str(action.get("service") or "").encode()
    request = b"\x0a" + bytes([len(name)]) + name if name else b""
    async with grpc.aio.insecure_channel(f"{target.address}:{target.port(action['port'])}") as channel:
        call = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            answer = await call(request, timeout=seconds)
        except grpc.RpcError as error:
            return False, str(error.code())
    serving = answer == b"\x08\x01"
    return serving, "" if serving else "service unhealthy (responded with NOT_SERVING)"


async def watch_probe(
    probe: Obj,
    target: ProbeTarget,
    report: Callable[[bool, str], None],
    failed: Callable[[str], None],
    settled: bool | None,
) -> None:
    """Probe until cancelled; `report` each change that the thresholds confirm, and tell `failed` of each failure.

    `settled` is the result assumed at the start (None when none is): a report comes when the result becomes another.
    """
    await asyncio.sleep(float(probe.get("initialDelaySeconds") or 0))
    period = float(probe.get("periodSeconds") or 10)
    needed = {True: int(probe.get("successThreshold") or 1), False: int(probe.get("failureThreshold") or 3)}
    streak_of: bool | None = None
    streak = 0
    while True:
        good, output = await check(probe, target)
        streak = streak + 1 if good == streak_of else 1
        streak_of = good
        if not good:
            failed(output)
        if streak >= needed[good] and settled != good:
            settled = good
            report(good, output)
        await asyncio.sleep(period)

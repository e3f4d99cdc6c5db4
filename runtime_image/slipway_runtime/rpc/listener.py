"""The gRPC port."""

from __future__ import annotations

import grpc

from slipway_runtime.rpc.observing import ObservingInterceptor
from slipway_runtime.rpc.service import RpcService
from slipway_runtime.telemetry.observer import Observer

_UNLIMITED = -1
# Clients and proxies may ping as often as they like to keep a connection open, also between calls.
_PINGS = (
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
)


def address_of(host: str, port: int) -> str:
    """The address as gRPC reads it: a host of IPv6 stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class RpcListener:
    """Takes calls until told to stop, and lets them end."""

    def __init__(
        self,
        service: RpcService,
        max_request_bytes: int,
        *,
        observer: Observer | None = None,
        shared: bool = False,
        max_inflight_bytes: int = 0,
    ) -> None:
        """``shared``: other processes listen on the same port.

        With ``max_inflight_bytes`` no message is larger: it is in memory before anybody can count it. The calls of a
        connection are not limited as well: those sent before the client knows the limit would fail.
        """
        if max_inflight_bytes:
            max_request_bytes = min(max_request_bytes, max_inflight_bytes)
        self._server = grpc.aio.server(
            handlers=service.handlers(),
            interceptors=() if observer is None else (ObservingInterceptor(observer),),
            options=(
                ("grpc.max_receive_message_length", max_request_bytes),
                ("grpc.max_send_message_length", _UNLIMITED),
                ("grpc.so_reuseport", int(shared)),
                *_PINGS,
            ),
        )

    async def open(self, host: str, port: int) -> int:
        """Listen; gives the port (of interest when ``port`` was 0). Raises OSError."""
        try:
            bound: int = self._server.add_insecure_port(address_of(host, port))
        except RuntimeError as error:
            raise OSError(0, str(error)) from error
        await self._server.start()
        return bound

    async def drain(self, seconds: float) -> None:
        """Tell clients to go elsewhere, take no new calls, and wait for those under way."""
        await self._server.stop(max(seconds, 0.0))

    async def close(self) -> None:
        """End everything."""
        await self._server.stop(None)

"""Watching HTTP requests for the access log and the traces."""

from __future__ import annotations

from slipway_runtime.http.connection import Handler
from slipway_runtime.http.exchange import Exchange
from slipway_runtime.telemetry.observer import Observer, working_on


class ObservedHandler:
    """Hands requests on to ``handler``, watched."""

    def __init__(self, handler: Handler, observer: Observer) -> None:
        self._handler = handler
        self._observer = observer

    def handle(self, exchange: Exchange) -> None:
        """Answer, now or later, through ``exchange.respond``."""
        watch = self._observer.begin(
            "http", exchange.method, exchange.path, exchange.headers, exchange.begun, len(exchange.body)
        )
        watch.remote = exchange.remote
        exchange.watch = watch
        with working_on(watch):
            self._handler.handle(exchange)

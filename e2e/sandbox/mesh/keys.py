"""Issuers' keys, fetched as istiod does it: the proxies are given the keys, never the address."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Iterable

import aiohttp

FETCH_SECONDS = 5.0
RETRY_SECONDS = 1.0
REFRESH_SECONDS = 20 * 60.0
DISCOVERY_PATH = "/.well-known/openid-configuration"

_log = logging.getLogger(__name__)


class KeyStore:
    """Keeps the keys of every issuer that is asked for; `changed` is called when some have come or changed."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.keys: dict[str, str] = {}
        """A JWKS as text by address; those that could not be fetched yet are not in it."""

    def want(self, addresses: Iterable[str]) -> None:
        """Fetch from these addresses from now on, and from no others."""
        wanted = set(addresses)
        for address in wanted - self._tasks.keys():
            self._tasks[address] = asyncio.create_task(self._keep(address), name=f"keys of {address}")
        for address in self._tasks.keys() - wanted:
            self._tasks.pop(address).cancel()
            self.keys.pop(address, None)

    async def stop(self) -> None:
        """Fetch no more."""
        tasks = list(self._tasks.values())
        self.want(())
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _keep(self, address: str) -> None:
        while True:
            try:
                found = await _fetched(address)
            except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
                _log.warning("keys of %s: %r", address, error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self.keys.get(address) != found:
                self.keys[address] = found
                self._changed()
            await asyncio.sleep(REFRESH_SECONDS)


async def _fetched(address: str) -> str:
    """The JWKS behind an address, or behind an issuer's discovery document when that is what it leads to."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(FETCH_SECONDS), raise_for_status=True) as session:
        discovered = f"{address.rstrip('/')}{DISCOVERY_PATH}"
        try:
            async with session.get(address) as answer:
                text = await answer.text()
            if "keys" in json.loads(text):
                return text
        except (aiohttp.ClientResponseError, ValueError):
            _log.debug("%s holds no keys; looking at %s", address, discovered)
        async with session.get(discovered) as answer:
            address = (await answer.json(content_type=None))["jwks_uri"]
        async with session.get(address) as answer:
            text = await answer.text()
        json.loads(text)["keys"]
        return text

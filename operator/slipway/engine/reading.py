"""Whether what is known of a ModelDeployment is its newest state, or has to be read first."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from slipway.kube.cache import Cache
from slipway.kube.client import Client
from slipway.kube.kinds import MODEL_DEPLOYMENT
from slipway.kube.metadata import Key, resource_version

__all__ = ["READ_AGAIN", "Reading"]

READ_AGAIN = 60.0
"""Seconds after which a ModelDeployment is read even if no watch has said that it changed: a watch can be deaf."""


class Reading:
    """ModelDeployments from the cache where that is enough, else from the API server."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        clock: Callable[[], float],
        listed_at: Callable[[], float] = lambda: -math.inf,
    ) -> None:
        """``listed_at`` says when all of them were last listed into the cache, by the ``clock``."""
        self._client = client
        self._cache = cache
        self._clock = clock
        self._listed_at = listed_at
        self._confirmed_at: dict[Key, float] = {}
        self._doubted: set[Key] = set()

    async def read(self, key: Key) -> Mapping[str, Any]:
        """The ModelDeployment: from the API server at first, after a failure and now and then, else from the cache.

        The first read is after the last write of any leader before us. From then on only we write what a decision
        rests on, and each of our writes is in the cache before the next decision; what people write comes by watch.
        After the first read a list is as good as another one. One without a status needs no first read: its first
        effect is to get one, on condition that nobody else has written meanwhile.
        """
        known = self._cache.get(MODEL_DEPLOYMENT, key)
        if known is not None and (self._is_confirmed(key) or self._is_new(key, known)):
            return known
        raw = await self._client.get(MODEL_DEPLOYMENT, *key)
        self._cache.put(MODEL_DEPLOYMENT, raw)
        self._doubted.discard(key)
        self.confirm(key, raw)
        return raw

    def confirm(self, key: Key, obj: Mapping[str, Any]) -> None:
        """Take note that the API server has just given this state: it was read, or written on condition."""
        kept = self._cache.get(MODEL_DEPLOYMENT, key)
        # After a restore from a backup the cache's copy is the "newer" one: then the cache is not to be believed.
        if kept is not None and resource_version(kept) == resource_version(obj):
            self._confirmed_at[key] = self._clock()

    def doubt(self, key: Key) -> None:
        """Have it read before the next decision."""
        self._confirmed_at.pop(key, None)
        self._doubted.add(key)

    def forget(self, key: Key) -> None:
        """Drop what is known of a ModelDeployment that is gone."""
        self._confirmed_at.pop(key, None)
        self._doubted.discard(key)

    def _is_confirmed(self, key: Key) -> bool:
        at = self._confirmed_at.get(key)
        return at is not None and self._clock() - max(at, self._listed_at()) < READ_AGAIN

    def _is_new(self, key: Key, known: Mapping[str, Any]) -> bool:
        return not known.get("status") and key not in self._doubted

"""Reading the ConfigMaps with golden requests; they are the user's and are not watched."""

from collections.abc import Callable, Mapping

from slipway.kube.client import Client
from slipway.kube.failures import ApiError, NotFoundError
from slipway.kube.kinds import CONFIG_MAP
from slipway.kube.metadata import Key

__all__ = ["GoldensReader"]


class GoldensReader:
    """Reads ConfigMaps with golden requests, each at most once in a while."""

    def __init__(self, client: Client, clock: Callable[[], float], lifetime: float = 60.0) -> None:
        """Keep what was read for ``lifetime`` seconds of the monotonic ``clock``."""
        self._client = client
        self._clock = clock
        self._lifetime = lifetime
        self._known: dict[Key, tuple[float, Mapping[str, str] | str]] = {}

    async def read(self, key: Key) -> Mapping[str, str] | str:
        """The data of a ConfigMap, or in words why there is none."""
        now = self._clock()
        known = self._known.get(key)
        if known is not None and now - known[0] < self._lifetime:
            return known[1]
        for old in [old for old, (at, _) in self._known.items() if now - at >= self._lifetime]:
            del self._known[old]
        try:
            data: Mapping[str, str] | str = (await self._client.get(CONFIG_MAP, *key)).get("data") or {}
        except NotFoundError:
            return f"ConfigMap {key.name} with the goldens does not exist"
        except ApiError as error:
            return f"ConfigMap {key.name} with the goldens cannot be read: {error}"
        self._known[key] = (now, data)
        return data

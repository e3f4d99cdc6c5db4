"""The page over a cache that the test fills: statuses are those of real decisions, values are the test's."""

import copy
import dataclasses
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from slipway.api.samples import MetricsView, Quality, Sample
from slipway.api.status import RolloutStatus
from slipway.kube.cache import Cache
from slipway.kube.kinds import MODEL_DEPLOYMENT
from slipway.kube.metadata import Key
from slipway.web import Answers, Records, serve_page
from slipway.web.records import Record

from tests.decide.world import World, serving

KEY = Key("n", "m")
P99 = {"v1": 0.08, "v2": 0.16}


@functools.cache
def _serving() -> World:
    return serving()


@dataclass
class Scene:
    world: World = field(default_factory=lambda: copy.deepcopy(_serving()))
    cache: Cache = field(default_factory=Cache)
    leading: bool = True
    url: str = ""
    version: int = 100

    def __post_init__(self) -> None:
        self.records = Records(self.cache, lambda namespace, name: self.metrics(), lambda: self.world.now)
        self.answers = Answers(self.cache, self.records)

    @property
    def record(self) -> Record:
        found = self.records.of(KEY)
        assert found is not None
        return found

    @property
    def rollout(self) -> RolloutStatus:
        assert self.world.status.rollout is not None
        return self.world.status.rollout

    def metrics(self) -> MetricsView:
        view = self.world.metrics()
        return dataclasses.replace(
            view,
            revisions={
                name: dataclasses.replace(found, latency_p99=Sample(P99[name.split("-")[1]], Quality.OK, view.at))
                for name, found in view.revisions.items()
            },
        )

    def put(self, **metadata: Any) -> dict[str, Any]:
        """Let the cache have the object as it is now; with other ``metadata`` it is another object."""
        self.version += 1
        raw = copy.deepcopy(self.world.raw)
        raw["metadata"] |= {"resourceVersion": str(self.version), **metadata}
        status = self.world.status.to_wire()
        obj = {"apiVersion": "slipway.dev/v1alpha1", "kind": "ModelDeployment", **raw, "status": status}
        self.cache.put(MODEL_DEPLOYMENT, obj)
        return obj

    def tick(self, seconds: float = 3.0) -> None:
        self.world.tick(seconds)
        self.put()
        self.records.measured()

    def roll_out(self, until: int = 10) -> None:
        """From v1 alone to v2 with a weight, observed."""
        self.put()
        self.records.measured()
        self.world.serve("v2")
        for _ in range(60):
            self.tick()
            if self.world.weight("v2") >= until and self.rollout.stage == "Observing":
                return
        raise AssertionError(f"no weight of {until}: {self.rollout}")

    @asynccontextmanager
    async def served(self, **more: Any) -> AsyncIterator["Scene"]:
        options: dict[str, Any] = {"host": "127.0.0.1", "port": 0} | more
        runner = await serve_page(self.answers, lambda: self.leading, lambda: self.world.now, **options)
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

"""Probes outside the reconcile: one background task per revision, whose end queues the object's key."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slipway.api.observed import PodView, ProbeView
from slipway.api.revisions import Revision
from slipway.engine.prober import PodIdentity, Prober, identities_of
from slipway.kube.failures import ApiError

__all__ = ["ChecksPods", "ProbeService", "Prober"]

logger = logging.getLogger(__name__)


class ChecksPods(Protocol):
    """What :class:`ProbeService` needs of a prober."""

    async def probe(
        self, revision: Revision, pods: Sequence[PodView], goldens: Mapping[str, str] | None, model_name: str
    ) -> ProbeView:
        """See :meth:`slipway.engine.prober.Prober.probe`."""

    def forget_failures(self) -> None:
        """See :meth:`slipway.engine.prober.Prober.forget_failures`."""


LoadConfigMap = Callable[[str, str], Awaitable[Mapping[str, str] | None]]
"""Namespace and name of a ConfigMap to its data; None where it does not exist."""

NO_POD = ProbeView(message="no pod is ready yet")


@dataclass(slots=True)
class _State:
    """What is known of one revision."""

    prober: ChecksPods
    view: ProbeView = field(default_factory=ProbeView)
    checked: frozenset[PodIdentity] = frozenset()
    finished_at: float = float("-inf")
    seen_at: float = 0.0
    task: asyncio.Task[None] | None = None


class ProbeService:
    """Gives what is known without waiting, and starts the checks that are missing.

    A failed or pending result is looked at again after a while, since goldens may have been corrected. Revisions are
    told apart by namespace and name.
    """

    IDLE = 3600.0
    """Seconds after which a revision that nobody asks for is forgotten."""

    def __init__(
        self,
        queue_key: Callable[[Hashable], None],
        load_config_map: LoadConfigMap,
        new_prober: Callable[[], ChecksPods] = Prober,
        *,
        retry: float = 15.0,
        at_once: int = 8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``retry``: seconds until what has not passed is looked at again; ``at_once``: revisions in parallel."""
        self._queue_key = queue_key
        self._load_config_map = load_config_map
        self._new_prober = new_prober
        self._retry = retry
        self._slots = asyncio.Semaphore(at_once)
        self._clock = clock
        self._states: dict[tuple[str, str], _State] = {}

    def view(
        self, key: Hashable, namespace: str, model_name: str, revision: Revision, pods: Sequence[PodView]
    ) -> ProbeView:
        """What is known by now of a revision's ready pods; ``key`` is queued once more is known."""
        ready = identities_of(pods)
        if not ready:
            return NO_POD
        state = self._states.get((namespace, revision.name))
        if state is None:
            state = self._states[namespace, revision.name] = _State(self._new_prober())
        now = state.seen_at = self._clock()
        again = state.view.passed is not True and now - state.finished_at >= self._retry
        if state.task is None and (again or ready - state.checked):
            run = self._run(state, key, namespace, model_name, revision, tuple(pods))
            state.task = asyncio.get_running_loop().create_task(run, name=f"probe {namespace}/{revision.name}")
        return state.view

    async def close(self) -> None:
        """End the probes under way."""
        tasks = [state.task for state in self._states.values() if state.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._states.clear()

    async def _run(
        self,
        state: _State,
        key: Hashable,
        namespace: str,
        model_name: str,
        revision: Revision,
        pods: tuple[PodView, ...],
    ) -> None:
        try:
            async with self._slots:
                state.view = await self._probe(state, namespace, model_name, revision, pods)
        except Exception:
            # The boundary of a background task: a defect must not leave the revision unprobed for ever.
            logger.exception("probe of %s/%s failed unexpectedly", namespace, revision.name)
            state.view = ProbeView(
                reason="ProbeFailed", message="the probe failed unexpectedly; see the operator's log"
            )
        finally:
            state.task = None
        state.checked = identities_of(pods)
        state.finished_at = self._clock()
        self._forget_idle()
        self._queue_key(key)

    async def _probe(
        self, state: _State, namespace: str, model_name: str, revision: Revision, pods: tuple[PodView, ...]
    ) -> ProbeView:
        if state.view.passed is False:
            state.prober.forget_failures()
        declared = revision.version.goldens
        texts = None
        if declared is not None:
            try:
                texts = await self._load_config_map(namespace, declared.config_map)
            except ApiError as error:
                return ProbeView(reason="GoldensMissing", message=f"ConfigMap {declared.config_map}: {error}")
        return await state.prober.probe(revision, pods, texts, model_name)

    def _forget_idle(self) -> None:
        now = self._clock()
        for key, state in tuple(self._states.items()):
            if state.task is None and now - state.seen_at > self.IDLE:
                del self._states[key]

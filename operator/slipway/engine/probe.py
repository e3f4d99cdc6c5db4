"""Probes outside the reconcile: one background task per revision, whose end queues the object's key."""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from slipway.api.observed import PodView, ProbeView
from slipway.api.revisions import Revision
from slipway.engine.goldens import digest_of
from slipway.engine.prober import PodIdentity, Prober, identities_of

__all__ = ["ChecksPods", "ProbeService", "Prober"]

logger = logging.getLogger(__name__)

Goldens = Mapping[str, str] | None
"""Data of the ConfigMap with the goldens; None where the version names none, or it does not exist."""


class ChecksPods(Protocol):
    """What :class:`ProbeService` needs of a prober."""

    async def probe(self, revision: Revision, pods: Sequence[PodView], goldens: Goldens, model_name: str) -> ProbeView:
        """See :meth:`slipway.engine.prober.Prober.probe`."""

    def forget_failures(self) -> None:
        """See :meth:`slipway.engine.prober.Prober.forget_failures`."""


NO_POD = ProbeView(message="no pod is ready yet")
CHECKING = ProbeView(message="signature and goldens are being checked")


@dataclass(slots=True)
class _State:
    """What is known of one revision."""

    prober: ChecksPods
    view: ProbeView = CHECKING
    checked: frozenset[PodIdentity] = frozenset()
    goldens: Goldens = None
    digest: str = ""
    finished_at: float = float("-inf")
    seen_at: float = 0.0
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def has_new(self, goldens: Goldens) -> bool:
        """Whether the goldens are others than those last looked at."""
        if goldens is self.goldens:
            return False
        if digest_of(goldens) != self.digest:
            return True
        self.goldens = goldens
        return False


class ProbeService:
    """Gives what is known without waiting, and starts the checks that are missing.

    A result stands for the pods it was found on. One that is not passed is looked at again after a while, since a
    server may recover. No namespace has more than half of the turns: servers that never answer make others wait no
    longer than their own.
    """

    IDLE = 3600.0
    """Seconds after which a revision that nobody asks for is forgotten."""

    def __init__(
        self,
        queue_key: Callable[[Hashable], None],
        new_prober: Callable[[Hashable], ChecksPods] = lambda key: Prober(),
        *,
        retry: float = 15.0,
        at_once: int = 8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``retry``: seconds until what has not passed is looked at again; ``at_once``: revisions in parallel.

        ``new_prober`` is given the key of the object that a revision belongs to.
        """
        self._queue_key = queue_key
        self._new_prober = new_prober
        self._retry = retry
        self._slots = asyncio.Semaphore(at_once)
        self._share = max(1, at_once // 2)
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._clock = clock
        self._states: dict[tuple[Hashable, str], _State] = {}

    def view(
        self,
        revision: Revision,
        pods: Sequence[PodView],
        goldens: Goldens,
        model_name: str,
        *,
        key: Hashable = None,
    ) -> ProbeView:
        """What is known by now of a revision's ready pods; ``key`` is queued once more is known."""
        ready = identities_of(pods)
        if not ready:
            return NO_POD
        state = self._states.get((key, revision.name))
        if state is None:
            state = self._states[key, revision.name] = _State(self._new_prober(key))
        now = state.seen_at = self._clock()
        again = state.view.passed is not True and now - state.finished_at >= self._retry
        if state.task is None and (again or ready - state.checked or state.has_new(goldens)):
            run = self._run(state, key, revision, tuple(pods), goldens, model_name)
            state.task = asyncio.get_running_loop().create_task(run, name=f"probe of {revision.name}")
        return state.view if ready & state.checked else CHECKING

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
        revision: Revision,
        pods: tuple[PodView, ...],
        goldens: Goldens,
        model_name: str,
    ) -> None:
        if state.view.passed is False:
            state.prober.forget_failures()
        try:
            async with self._share_of(key), self._slots:
                state.view = await state.prober.probe(revision, pods, goldens, model_name)
        except Exception:
            # The boundary of a background task: a defect must not leave the revision unprobed for ever.
            logger.exception("probe of %s failed unexpectedly", revision.name)
            state.view = ProbeView(
                reason="ProbeFailed", message="the probe failed unexpectedly; see the operator's log"
            )
        finally:
            state.task = None
        state.checked = identities_of(pods)
        state.goldens, state.digest = goldens, digest_of(goldens)
        state.finished_at = self._clock()
        self._forget_idle()
        if key is not None:
            self._queue_key(key)

    def _share_of(self, key: Hashable) -> asyncio.Semaphore:
        """The turns of a key's namespace; forgotten with the last of its probes."""
        namespace = str(getattr(key, "namespace", ""))
        share = self._shares.get(namespace)
        if share is None:
            share = self._shares[namespace] = asyncio.Semaphore(self._share)
        return share

    def _forget_idle(self) -> None:
        now = self._clock()
        for key, state in tuple(self._states.items()):
            if state.task is None and now - state.seen_at > self.IDLE:
                del self._states[key]

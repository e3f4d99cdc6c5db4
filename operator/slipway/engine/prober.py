"""The prober: the operator's own requests to a revision's servers, before any traffic goes there.

Ready pods are asked for their metadata, which must agree with the declared inputs, outputs and digest, and for the
answers to the goldens. A server is not trusted: what it answers is bounded in time and size, and whatever it does ends
in a :class:`~slipway.api.observed.ProbeView`. Requests carry the shadow header: no server counts them as served.

A result is definite (passed or failed) or pending; definite ones are kept per start of a container.
"""

import asyncio
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
from tritonclient.utils import InferenceServerException

from slipway.api.observed import PodView, ProbeView
from slipway.api.revisions import Revision
from slipway.api.versions import Engine
from slipway.engine.goldens import Golden, GoldensError, difference, digest_of, parse_goldens, request_inputs
from slipway.engine.probe_client import LARGE_AT_ONCE, BoundedClient, RefusedAnswerError
from slipway.engine.signature import signature_mismatch
from slipway.resources.engines import http_port

__all__ = ["PodIdentity", "Prober", "identities_of"]

SHADOW_HEADERS = {"x-slipway-shadow": "true"}
_BUSY = frozenset({"408", "429", "502", "503", "504"})
_GARBAGE = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, MemoryError,
    struct.error,
)  # fmt: skip
_MESSAGE_LENGTH = 1000

PodIdentity = tuple[str, str, float, int]


@dataclass(frozen=True, slots=True)
class _Expectation:
    """What every pod of a revision has to show."""

    revision: Revision
    model_name: str
    goldens: tuple[Golden, ...]


class Prober:
    """Checks pods; keeps definite results per revision, container start and goldens."""

    def __init__(
        self,
        *,
        port: int | None = None,
        host: str = "",
        request_timeout: float = 10.0,
        timeout: float = 60.0,
        at_once: int = 4,
        large: asyncio.Semaphore | None = None,
    ) -> None:
        """Seconds for one request and for a whole pod; ``at_once`` pods are asked in parallel.

        ``port`` stands for the one that the revision's pods listen on; ``host`` is the name that they are asked for by,
        still at their own addresses: a proxy knows by it whom a request is for. ``large`` bounds how many pods, of all
        probers that share it, may have answered at length.
        """
        self._port = port
        self._host = host
        self._request_timeout = request_timeout
        self._timeout = timeout
        self._slots = asyncio.Semaphore(at_once)
        self._large = large or asyncio.Semaphore(LARGE_AT_ONCE)
        self._results: dict[tuple[str, str], dict[PodIdentity, ProbeView]] = {}

    async def probe(
        self, revision: Revision, pods: Sequence[PodView], goldens: Mapping[str, str] | None, model_name: str
    ) -> ProbeView:
        """Check the ready pods that have not been checked yet; never raises for anything a server or a golden does.

        ``goldens`` is the data of the ConfigMap that the version names; None where it does not exist.
        """
        ready = _ready(pods)
        if not ready:
            return ProbeView(message="no pod is ready yet")
        try:
            expectation = _Expectation(revision, model_name, _goldens_of(revision, goldens))
        except _MissingGoldensError as error:
            return ProbeView(reason="GoldensMissing", message=str(error))
        except GoldensError as error:
            return ProbeView(passed=False, reason="GoldensInvalid", message=str(error)[:_MESSAGE_LENGTH])
        key = (revision.name, digest_of(goldens))
        known = self._results.get(key, {})
        results = {_identity(pod): known[_identity(pod)] for pod in ready if _identity(pod) in known}
        open_pods = [pod for pod in ready if _identity(pod) not in results]
        pending = []
        for pod, view in zip(open_pods, await self._check_all(open_pods, expectation), strict=True):
            if view.passed is None:
                pending.append(view)
            else:
                results[_identity(pod)] = view
        self._results = {key: results}
        return _summary(tuple(results.values()), tuple(pending))

    def cached(
        self, revision: Revision, pods: Sequence[PodView], goldens: Mapping[str, str] | None
    ) -> ProbeView | None:
        """The result when every ready pod has a definite one for these goldens, else None."""
        known = self._results.get((revision.name, digest_of(goldens)), {})
        ready = _ready(pods)
        if not ready or any(_identity(pod) not in known for pod in ready):
            return None
        return _summary(tuple(known[_identity(pod)] for pod in ready), ())

    def forget_failures(self) -> None:
        """Drop what failed, so that it is looked at again."""
        self._results = {
            key: {identity: view for identity, view in views.items() if view.passed}
            for key, views in self._results.items()
        }

    async def _check_all(self, pods: Sequence[PodView], expectation: _Expectation) -> list[ProbeView]:
        return list(await asyncio.gather(*(self._check(pod, expectation) for pod in pods)))

    async def _check(self, pod: PodView, expectation: _Expectation) -> ProbeView:
        """One pod; everything that it may do wrong becomes a view."""
        try:
            async with self._slots, asyncio.timeout(self._timeout):
                port = self._port or http_port(expectation.revision)
                address = f"[{pod.ip}]:{port}" if ":" in pod.ip else f"{pod.ip}:{port}"
                host = f"{self._host}:{port}" if self._host else ""
                client = BoundedClient(address, self._request_timeout, host, self._large)
                try:
                    examine = _EXAMINATIONS.get(expectation.revision.runtime.engine, _examine)
                    view = await examine(client, expectation)
                    view = replace(view, loaded_digest=view.loaded_digest or pod.fetched_digest)
                    return view if view.passed else replace(view, message=f"{pod.name}: {view.message}")
                finally:
                    await client.close()
        except TimeoutError:
            return _pending(
                pod, f"no answer in time ({self._request_timeout:g} s a request, {self._timeout:g} s in all)"
            )
        except RefusedAnswerError as error:
            return _failed("ProbeFailed", f"{pod.name}: {error}")
        except (aiohttp.ClientError, OSError) as error:
            return _pending(pod, str(error) or type(error).__name__)
        except InferenceServerException as error:
            if error.status() in _BUSY:
                return _pending(pod, f"HTTP {error.status()}: {error.message()}")
            return _failed("ProbeFailed", f"{pod.name}: HTTP {error.status()}: {error.message()}")
        except _GARBAGE as error:
            return _failed("ProbeFailed", f"{pod.name}: the answer cannot be read: {type(error).__name__}: {error}")


class _MissingGoldensError(Exception):
    """The ConfigMap that the version names does not exist."""


def _goldens_of(revision: Revision, texts: Mapping[str, str] | None) -> tuple[Golden, ...]:
    declared = revision.version.goldens
    if declared is None:
        return ()
    if texts is None:
        raise _MissingGoldensError(f"ConfigMap {declared.config_map} with the goldens does not exist")
    return parse_goldens(texts)


async def _examine(client: BoundedClient, expectation: _Expectation) -> ProbeView:
    """Ready, metadata, goldens: raises for a server that does not answer properly."""
    if not await client.is_server_ready(headers=dict(SHADOW_HEADERS)):
        return ProbeView(reason="ProbeFailed", message="the server does not report ready")
    version = expectation.revision.version
    metadata = await client.get_model_metadata(expectation.model_name, headers=dict(SHADOW_HEADERS))
    digest = _digest(metadata)
    if version.sha256 and digest and digest != f"sha256:{version.sha256}":
        return _failed("DigestMismatch", f"the server has loaded {digest}, declared is sha256:{version.sha256}", digest)
    for side, declared in (("input", version.inputs), ("output", version.outputs)):
        mismatch = signature_mismatch(side, declared, metadata.get(f"{side}s"))
        if mismatch:
            return _failed("SignatureMismatch", mismatch, digest)
    for golden in expectation.goldens:
        wrong = await _wrong_answer(client, expectation, golden)
        if wrong:
            return _failed("GoldensFailed", wrong, digest)
    return ProbeView(passed=True, loaded_digest=digest)


async def _examine_open_ai(client: BoundedClient, expectation: _Expectation) -> ProbeView:
    """A server of OpenAI's protocol has no tensors to declare: it has to know the model by its name."""
    models = await client.json_of("v1/models", dict(SHADOW_HEADERS))
    names = [str(entry["id"]) for entry in models["data"]]
    if expectation.model_name not in names:
        return _failed("ProbeFailed", f"the server has the models {', '.join(names)}, not {expectation.model_name}")
    return ProbeView(passed=True)


async def _wrong_answer(client: BoundedClient, expectation: _Expectation, golden: Golden) -> str:
    declared = expectation.revision.version.goldens
    try:
        result = await client.infer(
            expectation.model_name,
            request_inputs(golden),
            parameters=dict(golden.parameters) or None,
            headers=dict(SHADOW_HEADERS),
        )
    except InferenceServerException as error:
        if error.status() in _BUSY:
            raise
        return f"{golden.label}: HTTP {error.status()}: {error.message()}"
    return difference(golden, result, declared.tolerance) if declared else ""


_EXAMINATIONS = {Engine.VLLM: _examine_open_ai}
"""By engine; the others speak the Open Inference Protocol."""


def _digest(metadata: Any) -> str:
    """The digest of the artefact as the server reports it, ``sha256:<hex>``; empty where it reports none."""
    parameters = metadata.get("parameters") or {}
    digest = parameters.get("sha256") or ""
    if isinstance(digest, Mapping):
        digest = digest.get("string_value") or ""
    text = str(digest).removeprefix("sha256:")
    return f"sha256:{text[:64]}" if text else ""


def _ready(pods: Sequence[PodView]) -> list[PodView]:
    return [pod for pod in pods if pod.ready and not pod.terminating and pod.ip]


def identities_of(pods: Sequence[PodView]) -> frozenset[PodIdentity]:
    """The container starts that can be asked."""
    return frozenset(_identity(pod) for pod in _ready(pods))


def _identity(pod: PodView) -> PodIdentity:
    """A start of a pod's container: a restarted server has loaded the artefact anew."""
    return pod.name, pod.ip, pod.created_at, pod.restarts


def _pending(pod: PodView, message: str) -> ProbeView:
    return ProbeView(reason="ProbeFailed", message=f"{pod.name}: {message}"[:_MESSAGE_LENGTH])


def _failed(reason: str, message: str, digest: str = "") -> ProbeView:
    return ProbeView(passed=False, reason=reason, message=message[:_MESSAGE_LENGTH], loaded_digest=digest)


def _summary(definite: Sequence[ProbeView], pending: Sequence[ProbeView]) -> ProbeView:
    """One failed pod fails the revision; one that passed passes it while others are still looked at."""
    for view in definite:
        if view.passed is False:
            return view
    if definite:
        return definite[0]
    return pending[0] if pending else ProbeView()

"""Metric names of other model servers, translated into the runtime's own, so that everything after knows one language.

Such servers know nothing of versions: who they are is told by the labels that scraping takes from their pods
(``labelmap`` of ``__meta_kubernetes_pod_label_(.+)``, as usual scrape configurations do).

Triton: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/metrics.html
vLLM: https://docs.vllm.ai/en/latest/design/metrics.html
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from slipway.metrics.traces import Trace

__all__ = ["CACHE_USAGE", "FOREIGN_NAMES", "IDENTITY", "translated"]

CACHE_USAGE = "slipway_kv_cache_usage_ratio"
"""Share of the key-value cache in use. vLLM takes all GPU memory at once, so this is what its memory says."""
IDENTITY = {
    "slipway_dev_model_deployment": "model",
    "slipway_dev_version": "version",
    "slipway_dev_revision": "revision",
}
"""Labels of pods as Prometheus spells them, and the runtime's labels that they become."""
_SCRAPE_LABELS = frozenset({"namespace", "pod", "node", "job", "instance", "prometheus", "prometheus_replica"})


@dataclass(frozen=True, slots=True)
class _Word:
    """One of the runtime's series."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    factor: float = 1.0


_MICROSECONDS = 1e-6
_REQUESTS = "slipway_requests_total"
_WAITS = "slipway_queue_duration_seconds"
_DICTIONARY: dict[str, tuple[_Word, ...]] = {
    "nv_inference_request_success": (_Word(_REQUESTS, {"code": "200"}), _Word(f"{_WAITS}_count")),
    "nv_inference_request_failure": (_Word(_REQUESTS, {"code": "500"}),),
    "nv_inference_pending_request_count": (_Word("slipway_queue_depth"), _Word("slipway_requests_in_flight")),
    "nv_inference_queue_duration_us": (_Word(f"{_WAITS}_sum", factor=_MICROSECONDS),),
    "vllm_request_success_total": (_Word(_REQUESTS, {"code": "200"}),),
    "vllm_num_requests_running": (_Word("slipway_requests_in_flight"),),
    "vllm_num_requests_waiting": (_Word("slipway_requests_in_flight"), _Word("slipway_queue_depth")),
    "vllm_request_queue_time_seconds_sum": (_Word(f"{_WAITS}_sum"),),
    "vllm_request_queue_time_seconds_count": (_Word(f"{_WAITS}_count"),),
    "vllm_e2e_request_latency_seconds_bucket": (_Word("slipway_request_duration_seconds_bucket"),),
    "vllm_kv_cache_usage_perc": (_Word(CACHE_USAGE),),
    "vllm_gpu_cache_usage_perc": (_Word(CACHE_USAGE),),
}
"""Foreign names, with the colon of vLLM's spelt as an underscore, as some pipelines do."""

FOREIGN_NAMES = "|".join(name.replace("vllm_", "vllm[:_]", 1) for name in _DICTIONARY)
"""A pattern of them all, for one query."""


def translated(trace: Trace) -> Iterator[Trace]:
    """A series in the runtime's words; the series itself where it is in them already, none where nobody needs it."""
    words = _DICTIONARY.get(trace.name.replace(":", "_", 1))
    if words is None:
        yield trace
        return
    labels = {name: value for name, value in trace.labels.items() if name in _SCRAPE_LABELS}
    labels |= {ours: trace.labels.get(theirs, "") for theirs, ours in IDENTITY.items()}
    if "le" in trace.labels:
        labels["le"] = trace.labels["le"]
    for word in words:
        samples = trace.samples
        if word.factor != 1:
            samples = tuple((at, word.factor * value) for at, value in samples)
        yield Trace({"__name__": word.name, **labels, **word.labels}, samples)

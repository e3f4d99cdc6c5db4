"""Metric names of other model servers, translated into the runtime's own, so that everything after knows one language.

Such servers know nothing of versions: who they are is told by the labels that scraping takes from their pods
(``labelmap`` of ``__meta_kubernetes_pod_label_(.+)``, as usual scrape configurations do).

Triton: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/metrics.html
vLLM: https://docs.vllm.ai/en/latest/design/metrics.html
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from slipway.metrics.pods import SCRAPED
from slipway.metrics.traces import Trace

__all__ = ["CACHE_USAGE", "FOREIGN_NAMES", "IDENTITY", "reworded", "seconds_of", "translated"]

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
_DURATIONS = "slipway_request_duration_seconds_bucket"
_DICTIONARY: dict[str, tuple[_Word, ...]] = {
    "up": (_Word(SCRAPED),),
    "nv_inference_request_success": (_Word(_REQUESTS, {"code": "200"}), _Word(f"{_WAITS}_count")),
    "nv_inference_request_failure": (_Word(_REQUESTS, {"code": "500"}),),
    "nv_inference_pending_request_count": (_Word("slipway_queue_depth"), _Word("slipway_requests_in_flight")),
    "nv_inference_queue_duration_us": (_Word(f"{_WAITS}_sum", factor=_MICROSECONDS),),
    "nv_inference_first_response_histogram_ms_bucket": (_Word(_DURATIONS),),
    "vllm_request_success_total": (_Word(_REQUESTS, {"code": "200"}),),
    "http_requests_total": (_Word(_REQUESTS, {"code": "500"}),),
    "vllm_num_requests_running": (_Word("slipway_requests_in_flight"),),
    "vllm_num_requests_waiting": (_Word("slipway_requests_in_flight"), _Word("slipway_queue_depth")),
    "vllm_request_queue_time_seconds_sum": (_Word(f"{_WAITS}_sum"),),
    "vllm_request_queue_time_seconds_count": (_Word(f"{_WAITS}_count"),),
    "vllm_e2e_request_latency_seconds_bucket": (_Word(_DURATIONS),),
    "vllm_kv_cache_usage_perc": (_Word(CACHE_USAGE),),
    "vllm_gpu_cache_usage_perc": (_Word(CACHE_USAGE),),
}
"""Foreign names, with the colon of vLLM's spelt as an underscore, as some pipelines do."""
_CODES: dict[tuple[str, str], dict[str, str]] = {
    # Cancelled by the client; refused because the queue is full.
    ("nv_inference_request_failure", "reason"): {"CANCELED": "499", "REJECTED": "503"},
    ("vllm_request_success_total", "finished_reason"): {"abort": "499"},
}
"""Status codes by a label's value, where they differ from the dictionary's."""

FOREIGN_NAMES = "|".join(name.replace("vllm_", "vllm[:_]", 1) for name in _DICTIONARY)
"""A pattern of them all, for one query."""


def translated(traces: Iterable[Trace]) -> Iterator[Trace]:
    """Series in the runtime's words; those that are in them already as they are, without what nobody needs."""
    known = list(traces)
    entries = {_pod(trace) for trace in known if _is_entry(trace)}
    for trace in known:
        words = _DICTIONARY.get(_spelt(trace.name))
        if words is None:
            yield trace
        elif _counts(trace, within=_pod(trace) in entries):
            yield from _in_words(trace, words)


def _in_words(trace: Trace, words: tuple[_Word, ...]) -> Iterator[Trace]:
    name, samples = _spelt(trace.name), trace.samples
    identity = {ours: trace.labels.get(theirs, "") for theirs, ours in IDENTITY.items()}
    if "le" in trace.labels:
        identity["le"] = seconds_of(trace.labels["le"]) if name.startswith("nv_") else trace.labels["le"]
    if name == "up":
        samples = tuple((at, value) for at, value in samples if value == 1)
    for word in words:
        own = {**identity, **word.labels, **_code_of(name, trace)} if word.name == _REQUESTS else identity
        scaled = tuple((at, word.factor * value) for at, value in samples) if word.factor != 1 else samples
        yield reworded(trace, word.name, own, scaled)


def reworded(trace: Trace, name: str, own: Mapping[str, str], samples: tuple[tuple[float, float], ...]) -> Trace:
    """A series under another name and with other labels, but for those of its scrape.

    What it said else is kept in one label: two series of one status code stay apart where targets are joined.
    """
    scrape = {label: value for label, value in trace.labels.items() if label in _SCRAPE_LABELS}
    origin = ",".join(f"{label}={value}" for label, value in sorted(trace.labels.items()) if label not in scrape)
    return Trace({"__name__": name, **scrape, **own, "origin": origin}, samples)


def _spelt(name: str) -> str:
    return name.replace(":", "_", 1)


def _code_of(name: str, trace: Trace) -> dict[str, str]:
    for (metric, label), codes in _CODES.items():
        if metric == name and trace.labels.get(label) in codes:
            return {"code": codes[trace.labels[label]]}
    return {}


def _counts(trace: Trace, *, within: bool) -> bool:
    """Whether a series is of the requests that clients made, and proves that its pod was scraped."""
    name, labels = _spelt(trace.name), trace.labels
    if name == "up":
        return any(value == 1 for _, value in trace.samples)
    if name == "http_requests_total":
        # The engine counts what it finishes; failures of the server in front of it are counted by that.
        return labels.get("status", "").startswith("5") and labels.get("handler", "").startswith("/v1/")
    if name == "vllm_request_success_total":
        # Ends as an answer with 500, which is counted already.
        return labels.get("finished_reason") != "error"
    # Of a repository's models the one that clients ask for counts; the others are its steps.
    return not (within and name.startswith("nv_inference")) or _is_entry(trace)


def _is_entry(trace: Trace) -> bool:
    """Whether it is Triton's series of the model that has the ModelDeployment's name."""
    wanted = trace.labels.get("slipway_dev_model_deployment", "")
    return trace.name.startswith("nv_inference") and bool(wanted) and trace.labels.get("model") == wanted


def _pod(trace: Trace) -> tuple[str, str]:
    return trace.labels.get("namespace", ""), trace.labels.get("pod", "")


def seconds_of(milliseconds: str) -> str:
    """A histogram's bound in seconds; what is no number stays as it is."""
    try:
        return repr(round(float(milliseconds) / 1000, 9))
    except ValueError:
        return milliseconds

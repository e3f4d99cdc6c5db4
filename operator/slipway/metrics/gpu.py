"""GPU metrics by DCGM exporter's names, attributed to pods.

One series per GPU or MIG instance. Prometheus renames the labels of the pod that uses the GPU to ``exported_pod`` and
``exported_namespace`` unless told to honour them; then ``pod`` and ``namespace`` are that pod's. Both are understood.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from slipway.api.samples import MISSING, Quality, Sample
from slipway.api.timestamps import whole_second
from slipway.metrics.merging import largest, mean, merge
from slipway.metrics.queries import GPU_RANGE
from slipway.metrics.traces import Trace

__all__ = ["PodGpu", "attribute"]

PodName = tuple[str, str]
"""Namespace and name."""
Reading = tuple[float, float, float]
"""When it was scraped (seconds since the epoch), the value, and the seconds for which it stays fresh."""

UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"
ENGINE_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
MEMORY_USED = "DCGM_FI_DEV_FB_USED"
MEMORY_FREE = "DCGM_FI_DEV_FB_FREE"

LARGEST_MEMORY = 1e9
"""MiB, a petabyte. DCGM writes huge numbers for fields that a board does not support: 0x7ffffff0 and the next ones for
32 bits, 0x7ffffffffffffff0 and the next ones for 64 bits, 140737488355328 and the next ones for fractions."""
ROUNDING = 1.02
"""Factor by which a measured share may be above its highest."""
HANDOVER = 60.0
"""Seconds for which a former user of a GPU still counts as one: the mapping of shared GPUs alternates."""


@dataclass(frozen=True, slots=True)
class PodGpu:
    """The GPUs of one pod; utilisation is their mean, memory is that of the fullest. Both in per cent."""

    utilization: Sample = MISSING
    memory: Sample = MISSING
    shared: bool = False
    """Whether it shares all that the exporter knows of, so that nothing can be told of it alone."""

    @property
    def tells(self) -> bool:
        """Whether the exporter measures it, or says why nobody can."""
        return self.shared or self.utilization.quality in {Quality.OK, Quality.PARTIAL}


@dataclass(slots=True)
class _Device:
    """A GPU or a MIG instance."""

    name: str
    values: dict[PodName, dict[str, Reading]] = field(default_factory=dict)
    """The newest by user and field."""

    def add(self, pod: PodName, metric: str, newest: Reading) -> None:
        known = self.values.setdefault(pod, {})
        known[metric] = max(known.get(metric, newest), newest)

    def users(self) -> dict[PodName, dict[str, Reading]]:
        """Pods that use it now, or did a moment ago."""
        ages = {pod: max(reading[0] for reading in fields.values()) for pod, fields in self.values.items()}
        begin = max(ages.values()) - HANDOVER
        return {pod: fields for pod, fields in self.values.items() if ages[pod] >= begin}


def attribute(traces: Iterable[Trace], now: float) -> Mapping[PodName, PodGpu]:
    """GPU metrics by pod. A GPU that several pods share says nothing of any of them."""
    by_pod: dict[PodName, list[PodGpu]] = {}
    for device in _devices(traces):
        users = device.users()
        for pod, fields in users.items():
            shared = f"{device.name} is shared by {len(users)} pods" if len(users) > 1 else ""
            gpu = _shared(shared) if shared else PodGpu(_utilization(fields, device, now), _memory(fields, device, now))
            by_pod.setdefault(pod, []).append(gpu)
    return {
        pod: PodGpu(
            merge([gpu.utilization for gpu in gpus], mean),
            merge([gpu.memory for gpu in gpus], largest),
            shared=all(gpu.shared for gpu in gpus),
        )
        for pod, gpus in by_pod.items()
    }


def _devices(traces: Iterable[Trace]) -> Iterable[_Device]:
    traces = list(traces)
    renaming = {trace.labels.get("instance", "") for trace in traces if trace.labels.get("exported_pod")}
    devices: dict[tuple[str, ...], _Device] = {}
    for trace in traces:
        labels = trace.labels
        pod = _user(labels, renamed=labels.get("instance", "") in renaming)
        key = tuple(labels.get(name, "") for name in ("Hostname", "UUID", "gpu", "GPU_I_ID"))
        if all(pod) and any(key):
            name = f"GPU {labels.get('gpu') or labels.get('UUID', '')} of {labels.get('Hostname', 'an unknown host')}"
            devices.setdefault(key, _Device(name)).add(pod, trace.name, (*trace.newest, _patience(trace)))
    return devices.values()


def _patience(trace: Trace) -> float:
    """Seconds for which its newest scrape is fresh: two may fail, as with those of servers."""
    times = [at for at, _ in trace.samples]
    distances = [later - earlier for earlier, later in pairwise(times)]
    return min(GPU_RANGE, max(20.0, 3 * median(distances))) if distances else GPU_RANGE


def _user(labels: Mapping[str, str], *, renamed: bool) -> PodName:
    """The pod that uses the GPU; where labels are renamed, an idle one has just the exporter's own pod: none."""
    if renamed:
        return labels.get("exported_namespace", ""), labels.get("exported_pod", "")
    return labels.get("namespace", ""), labels.get("pod", "")


def _shared(reason: str) -> PodGpu:
    return PodGpu(Sample(reason=reason), Sample(reason=reason), shared=True)


def _utilization(fields: Mapping[str, Reading], device: _Device, now: float) -> Sample:
    """Per cent; MIG instances have the engine's activity (0 to 1) only."""
    coarse = _reading(fields.get(UTILIZATION), 100.0, device, now)
    if coarse.ok:
        return coarse
    fine = _reading(fields.get(ENGINE_ACTIVE), 1.0, device, now)
    if fine.ok:
        return replace(fine, value=100 * fine.value)
    return coarse if coarse.quality is not Quality.MISSING else fine


def _memory(fields: Mapping[str, Reading], device: _Device, now: float) -> Sample:
    used = _reading(fields.get(MEMORY_USED), LARGEST_MEMORY, device, now)
    free = _reading(fields.get(MEMORY_FREE), LARGEST_MEMORY, device, now)
    if not used.ok or not free.ok:
        return free if used.ok else used
    if used.value + free.value <= 0:
        return Sample(0.0, Quality.INVALID, used.at, f"{device.name} has no memory")
    return Sample(100 * used.value / (used.value + free.value), Quality.OK, min(used.at, free.at))


def _reading(newest: Reading | None, highest: float, device: _Device, now: float) -> Sample:
    """A field's value, unless it is old, blank or outside of what can be."""
    if newest is None:
        return Sample(reason=f"{device.name} does not export it")
    at, value, patience = newest
    if now - at > patience:
        return Sample(0.0, Quality.STALE, at, f"{device.name} was last scraped at {whole_second(at)}")
    if not 0 <= value <= highest * ROUNDING:
        return Sample(0.0, Quality.INVALID, at, f"{device.name} exports {value:g}")
    return Sample(min(value, highest), Quality.OK, at)

"""Simulated GPUs: who has which, how busy each is, and how that is exported under the DCGM exporter's names. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

BUSY_METRIC = "slipway_executor_busy_seconds_total"
MODEL_NAME = "Simulated GPU"
DEFAULT_MEMORY_MIB = 81920.0

_BUSY_SAMPLE = re.compile(rf"^{BUSY_METRIC}(?:\{{.*\}})? (\S+)", re.MULTILINE)
_MEBIBYTE = 2**20


@dataclass(frozen=True)
class GpuHolder:
    """The container that has a GPU."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True)
class GpuReading:
    """The state of one simulated GPU: utilisation in per cent, used memory in MiB."""

    node: str
    index: int
    uuid: str
    holder: GpuHolder | None = None
    utilization: float = 0.0
    used_mib: float = 0.0


@dataclass(frozen=True)
class BusySample:
    """How many seconds a process had spent executing (of one source) when it was asked at time `at`."""

    at: float
    seconds: float
    source: str


def utilization(before: BusySample | None, after: BusySample) -> float | None:
    """Per cent of the time between two samples that was spent executing; None where they cannot be compared.

    A counter that went back belongs to a process that was restarted.
    """
    if before is None or before.source != after.source or after.at <= before.at or after.seconds < before.seconds:
        return None
    return min(100.0, 100.0 * (after.seconds - before.seconds) / (after.at - before.at))


def busy_seconds(exposition: str) -> float | None:
    """The executor's busy seconds in a pod's metrics, over all its models; None when the pod does not export them."""
    samples = [float(value) for value in _BUSY_SAMPLE.findall(exposition)]
    return sum(samples) if samples else None


def memory_mib(resident_bytes: float) -> float:
    """What a process' resident memory counts as on a simulated GPU."""
    return resident_bytes / _MEBIBYTE


class ReadingsCollector(Collector):
    """Exports the latest readings."""

    def __init__(self, memory_mib: float = DEFAULT_MEMORY_MIB) -> None:
        self._memory_mib = memory_mib
        self.readings: tuple[GpuReading, ...] = ()

    def collect(self) -> Iterator[Metric]:
        """The metric families in the order of the DCGM exporter."""
        free = {reading: max(0.0, self._memory_mib - reading.used_mib) for reading in self.readings}
        used = {reading: min(self._memory_mib, reading.used_mib) for reading in self.readings}
        busy = {reading: reading.utilization for reading in self.readings}
        yield _family("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %); simulated from busy time.", busy)
        yield _family("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB); simulated.", free)
        yield _family("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB); simulated from resident memory.", used)


LABELS = ("gpu", "UUID", "device", "modelName", "Hostname", "container", "namespace", "pod")


def _family(name: str, text: str, values: Mapping[GpuReading, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=LABELS)
    for reading, value in values.items():
        holder = reading.holder or GpuHolder("", "", "")
        device = (str(reading.index), reading.uuid, f"nvidia{reading.index}", MODEL_NAME, reading.node)
        family.add_metric((*device, holder.container, holder.namespace, holder.pod), value)
    return family


Allocation = dict[GpuHolder, tuple[int, ...]]


def allocate(
    count: int, wanted: Iterable[tuple[GpuHolder, int]], kept: Mapping[GpuHolder, tuple[int, ...]]
) -> Allocation:
    """Whole GPUs of a node for containers: who had some keeps them, the others get the lowest free numbers."""
    given: Allocation = {}
    taken: set[int] = set()
    # Those who keep theirs come first, so that no newcomer is given one of them.
    for holder, number in sorted(wanted, key=lambda want: want[0] not in kept):
        own = kept.get(holder, ())
        if len(own) != number or taken & set(own):
            own = tuple([index for index in range(count) if index not in taken][:number])
        given[holder] = own
        taken.update(own)
    return given

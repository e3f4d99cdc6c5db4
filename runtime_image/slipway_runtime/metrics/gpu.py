"""The GPUs that this process computes on, as the driver sees them. What is not known has no series."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from slipway_runtime.metrics.exposition import Registry, Value
from slipway_runtime.metrics.sheet import Sheet

_PERIOD_SECONDS = 1.0
_PERCENT = 100


class Nvml(Protocol):
    """What is used of the module ``pynvml``. All calls may raise its ``NVMLError``."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None:  # noqa: N802
        """Connect to the driver."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:  # noqa: N802
        """The device, or the part of one (MIG)."""

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:  # noqa: N802
        """Has ``gpu`` in per cent; not supported for a part of a device."""

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:  # noqa: N802
        """Has ``used`` and ``total`` in bytes."""


@dataclass(frozen=True)
class Device:
    """A GPU as torch numbers it; ``uuid`` as the driver spells it. ``reserved`` gives the bytes this process holds."""

    index: int
    uuid: str
    reserved: Callable[[], float]


def driver() -> Nvml | None:
    """The driver's library; None where it, its Python module or the driver is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    found: Nvml = pynvml
    return found


def torch_devices() -> list[Device]:
    """The devices on which this process has memory."""
    import torch

    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        if torch.cuda.memory_reserved(index):
            uuid = str(torch.cuda.get_device_properties(index).uuid)
            uuid = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
            found.append(Device(index, uuid, partial(torch.cuda.memory_reserved, index)))
    return found


@dataclass(frozen=True)
class _DeviceSeries:
    utilization: Value
    used: Value
    total: Value
    reserved: Value


class GpuMetrics:
    """Asks the driver once a second, on a thread of its own: it may take its time to answer."""

    def __init__(self, nvml: Nvml, devices: Sequence[Device], sheet: Sheet) -> None:
        self._nvml = nvml
        self._devices = devices
        self._closing = threading.Event()
        self._series = [_series(Registry({"gpu": str(one.index), "uuid": one.uuid}, sheet)) for one in devices]
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to ask."""
        self._thread = threading.Thread(target=self._run, name="gpu-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        self._closing.set()

    def _run(self) -> None:
        self.sample()
        while not self._closing.wait(_PERIOD_SECONDS):
            self.sample()

    def sample(self) -> None:
        """Ask once."""
        for device, series in zip(self._devices, self._series, strict=True):
            handle = self._asked(self._nvml.nvmlDeviceGetHandleByUUID, device.uuid)
            rates = None if handle is None else self._asked(self._nvml.nvmlDeviceGetUtilizationRates, handle)
            memory = None if handle is None else self._asked(self._nvml.nvmlDeviceGetMemoryInfo, handle)
            series.utilization.set(math.nan if rates is None else rates.gpu / _PERCENT)
            series.used.set(math.nan if memory is None else float(memory.used))
            series.total.set(math.nan if memory is None else float(memory.total))
            series.reserved.set(device.reserved())

    def _asked(self, question: Callable[[Any], Any], subject: Any) -> Any:
        try:
            return question(subject)
        except self._nvml.NVMLError:
            return None


def _series(registry: Registry) -> _DeviceSeries:
    series = _DeviceSeries(
        registry.value(
            "gauge", "slipway_gpu_utilization_ratio", "Share of the last moments in which the GPU computed."
        ),
        registry.value("gauge", "slipway_gpu_memory_used_bytes", "Memory of the GPU in use, by any process."),
        registry.value("gauge", "slipway_gpu_memory_total_bytes", "Memory of the GPU."),
        registry.value("gauge", "slipway_gpu_memory_reserved_bytes", "Memory of the GPU that this process holds."),
    )
    for one in (series.utilization, series.used, series.total, series.reserved):
        one.set(math.nan)
    return series


class GpuWatch:
    """Begins to ask as soon as a model is on a GPU, if there is a driver to ask."""

    def __init__(
        self,
        sheet: Sheet,
        driver: Callable[[], Nvml | None] = driver,
        devices: Callable[[], list[Device]] = torch_devices,
    ) -> None:
        self._sheet = sheet
        self._driver = driver
        self._devices = devices
        self._begun = False
        self._metrics: GpuMetrics | None = None

    def tick(self, accelerated: bool) -> None:
        """Called every second; ``accelerated``: a model is on a GPU."""
        if self._begun or not accelerated:
            return
        self._begun = True
        nvml = self._driver()
        if nvml is not None:
            self._metrics = GpuMetrics(nvml, self._devices(), self._sheet)
            self._metrics.start()

    def close(self) -> None:
        """Ask no more."""
        if self._metrics is not None:
            self._metrics.close()

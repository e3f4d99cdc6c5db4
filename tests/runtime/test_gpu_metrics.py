"""GPU series, by a stand-in for the driver's library (NVML): no GPU is needed, and none is claimed."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from slipway_runtime.metrics import gpu
from slipway_runtime.metrics.exposition import render
from slipway_runtime.metrics.gpu import Device, GpuMetrics, GpuWatch
from slipway_runtime.metrics.sheet import Sheet

from tests.runtime.harness import await_condition, parse_metrics


class FakeNVMLError(Exception):
    """The error of the stand-in."""


@dataclass
class FakeNvml:
    """Stands in for pynvml: devices by uuid, and the calls that are not supported."""

    NVMLError: type[Exception] = FakeNVMLError
    devices: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Utilisation in per cent, bytes used, bytes in all."""
    unsupported: set[str] = field(default_factory=set)

    def _of(self, call: str, uuid: str) -> tuple[int, int, int]:
        if call in self.unsupported or uuid not in self.devices:
            raise FakeNVMLError(call)
        return self.devices[uuid]

    def nvmlInit(self) -> None:  # noqa: N802
        self._of("init", next(iter(self.devices)))

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        self._of("handle", uuid)
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self._of("utilization", handle)[0])

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802
        return SimpleNamespace(used=self._of("memory", handle)[1], total=self._of("memory", handle)[2])


UUID = "GPU-00000000-0000-0000-0000-00000000fa4e"
DEVICE = Device(0, UUID, lambda: 4096.0)


def series(sheet: Sheet) -> dict[str, float]:
    found = parse_metrics(render(sheet).decode())
    labels = f'{{gpu="0",uuid="{UUID}"}}'
    return {name.removesuffix(labels): value for name, value in found.items() if name.endswith(labels)}


def test_series_of_a_device() -> None:
    sheet = Sheet()
    metrics = GpuMetrics(FakeNvml(devices={UUID: (37, 1000, 5000)}), [DEVICE], sheet)
    assert series(sheet) == {}
    metrics.sample()
    assert series(sheet) == {
        "slipway_gpu_utilization_ratio": 0.37,
        "slipway_gpu_memory_used_bytes": 1000,
        "slipway_gpu_memory_total_bytes": 5000,
        "slipway_gpu_memory_reserved_bytes": 4096,
    }


def test_what_is_not_known_is_absent_and_not_zero() -> None:
    sheet = Sheet()
    nvml = FakeNvml(devices={UUID: (0, 1000, 5000)}, unsupported={"utilization"})  # as for a part of a GPU (MIG)
    metrics = GpuMetrics(nvml, [DEVICE], sheet)
    metrics.sample()
    assert sorted(series(sheet)) == [f"slipway_gpu_memory_{one}_bytes" for one in ("reserved", "total", "used")]
    nvml.unsupported.clear()
    metrics.sample()
    assert series(sheet)["slipway_gpu_utilization_ratio"] == 0
    nvml.devices.clear()  # it fell off the bus
    metrics.sample()
    assert sorted(series(sheet)) == ["slipway_gpu_memory_reserved_bytes"]


def test_a_server_asks_once_a_model_is_on_a_gpu() -> None:
    sheet = Sheet()
    watch = GpuWatch(sheet, lambda: FakeNvml(devices={UUID: (5, 1, 2)}), lambda: [DEVICE])
    watch.tick(False)
    assert series(sheet) == {}
    watch.tick(True)
    await_condition(lambda: len(series(sheet)) == 4)
    watch.close()


def test_without_driver_or_module_there_are_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = Sheet()
    watch = GpuWatch(sheet, lambda: None, lambda: [DEVICE])
    watch.tick(True)
    watch.close()
    assert render(sheet) == b""
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    assert gpu.driver() is None
    broken = FakeNvml(devices={UUID: (5, 1, 2)}, unsupported={"init"})
    monkeypatch.setitem(__import__("sys").modules, "pynvml", broken)
    assert gpu.driver() is None
    broken.unsupported.clear()
    assert gpu.driver() is broken


def test_devices_are_those_on_which_torch_has_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    assert gpu.torch_devices() == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 512 * index)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=f"abc-{index}"))
    [device] = gpu.torch_devices()
    assert (device.index, device.uuid, device.reserved()) == (1, "GPU-abc-1", 512)

"""What a process uses and what its counters say."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

__all__ = ["Exposition", "Usage", "histogram_quantile", "percentile", "usage_of"]

_SAMPLE = re.compile(r"^(?P<name>[a-z_]+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """CPU seconds up to now and peak memory in MiB."""

    cpu: float
    peak: float


def usage_of(pid: int) -> Usage:
    """What a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return Usage((int(fields[11]) + int(fields[12])) / _TICKS, int(peak[1]) / 1024 if peak else 0.0)


class Exposition:
    """Samples of a /metrics page."""

    def __init__(self, text: str) -> None:
        self._samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {
            (found["name"], tuple(sorted(_LABEL.findall(found["labels"] or "")))): float(found["value"])
            for found in _SAMPLE.finditer(text)
        }

    @classmethod
    async def of(cls, url: str) -> "Exposition":
        """Read a page."""
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return cls(await response.text())

    def of_name(self, name: str) -> Mapping[tuple[tuple[str, str], ...], float]:
        """All samples of a name, by their labels."""
        return {labels: value for (sample, labels), value in self._samples.items() if sample == name}

    def requests(self) -> Counter[tuple[str, str]]:
        """The operator's calls to the API server by method and resource, but for its lease's."""
        counts: Counter[tuple[str, str]] = Counter()
        for labels, value in self.of_name("slipway_operator_api_requests_total").items():
            by_name = dict(labels)
            if by_name["resource"] != "leases":
                counts[by_name["method"], by_name["resource"]] += int(value)
        return counts

    def reconciles(self) -> float:
        """Reconciles, however they ended."""
        return sum(self.of_name("slipway_operator_reconciles_total").values())

    def buckets(self, name: str) -> dict[float, float]:
        """Cumulative counts of a histogram by upper bound in seconds."""
        return {float(dict(labels)["le"]): value for labels, value in self.of_name(f"{name}_bucket").items()}


def histogram_quantile(before: Mapping[float, float], after: Mapping[float, float], share: float) -> float:
    """The upper bound in seconds of the bucket in which the quantile lies; NaN when nothing was counted."""
    gained = {bound: after[bound] - before.get(bound, 0.0) for bound in sorted(after)}
    total = max(gained.values(), default=0.0)
    return next((bound for bound, count in gained.items() if total and count >= share * total), float("nan"))


def percentile(values: Iterable[float], share: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")

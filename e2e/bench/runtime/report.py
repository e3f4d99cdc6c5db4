"""Medians, tables and goals."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.bench.runtime.environments import ROOT
from e2e.bench.runtime.peers import PEERS
from e2e.bench.runtime.workloads import WORKLOADS

PAGE = ROOT / "docs" / "runtime-bench.md"
_BEGIN, _END = "<!-- begin of the generated part -->", "<!-- end of the generated part -->"
_TITLES = {one.name: one.title for one in PEERS}
_SMALL = "identity-16"


@dataclass
class Results:
    """All samples, and why there are none, by workload and server."""

    taken: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    reasons: dict[str, dict[str, str]] = field(default_factory=dict)
    failures: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Results:
        """What an earlier run left."""
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"taken": self.taken, "reasons": self.reasons, "failures": self.failures}

    def samples(self, workload: str, peer: str) -> list[dict[str, float]]:
        """The measurements of a pair."""
        return self.taken.get(workload, {}).get(peer, [])

    def add(self, workload: str, peer: str, sample: dict[str, float]) -> None:
        """A measurement."""
        self.taken.setdefault(workload, {}).setdefault(peer, []).append(sample)
        self.failures.get(workload, {}).pop(peer, None)
        if workload in self.failures and not self.failures[workload]:
            del self.failures[workload]

    def note(self, workload: str, peer: str, reason: str) -> None:
        """Why a server is not asked."""
        self.reasons.setdefault(workload, {})[peer] = reason

    def fail(self, workload: str, peer: str, problem: str) -> None:
        """What went wrong with a server that was asked."""
        self.failures.setdefault(workload, {})[peer] = problem

    def median(self, workload: str, peer: str, figure: str) -> float | None:
        """The median of a figure over the rounds."""
        values = [one[figure] for one in self.samples(workload, peer)]
        return statistics.median(values) if values else None


def _row(results: Results, workload: str, peer: str) -> list[str] | None:
    rate = results.median(workload, peer, "rate")
    if rate is None:
        reason = results.failures.get(workload, {}).get(peer)
        known = results.reasons.get(workload, {}).get(peer)
        if reason is None and (known is None or known.startswith("not asked")):
            return None
        return [_TITLES[peer], f"cannot ({known or reason})", *[""] * 5]
    ours = results.median(workload, "slipway", "rate")
    micro = [(results.median(workload, peer, name) or 0.0) * 1e6 for name in ("p50", "p99", "cpu")]
    ratio = f"{ours / rate:.2f}x" if ours else ""
    rounds = str(len(results.samples(workload, peer)))
    return [_TITLES[peer], f"{rate:,.0f}", *(f"{one:,.0f}" for one in micro), ratio, rounds]


def tables(results: Results) -> str:
    """One table for each workload."""
    parts = []
    for workload in WORKLOADS:
        rows = [row for peer in PEERS if (row := _row(results, workload.name, peer.name)) is not None]
        if not rows:
            continue
        head = ["server", "requests/s", "p50 µs", "p99 µs", "CPU µs/request", "Slipway's rate to this", "rounds"]
        lines = [head, ["---"] + ["---:"] * 6, *rows]
        parts.append(f"### {workload.title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
    return "\n".join(parts)


def goals(results: Results) -> list[tuple[str, str, bool]]:
    """Each goal with what was measured and whether it was met; those without measurements are left out."""
    found: list[tuple[str, str, bool]] = []
    threaded = max(
        (results.median(one, "slipway-threaded", "rate") or 0.0 for one in ("identity-16", "identity-64")), default=0.0
    )
    if threaded:
        found.append(("20,000 no-op requests a second, model on its thread", f"{threaded:,.0f}", threaded >= 20_000))
    for peer in ("slipway", "slipway-threaded"):
        p50 = results.median("identity-1", peer, "p50")
        if p50:
            title = f"{_TITLES[peer]}: p50 under 250 µs with one client"
            found.append((title, f"{p50 * 1e6:.0f} µs", p50 < 250e-6))
    for workload, wire in (("picture-http", "binary HTTP"), ("picture-grpc", "gRPC")):
        p50 = results.median(workload, "slipway", "p50")
        if p50:
            found.append((f"602 KB by {wire} in under 1 ms", f"p50 {p50 * 1e6:,.0f} µs", p50 < 1e-3))
    found += _ratios(results)
    return found


def _ratios(results: Results) -> list[tuple[str, str, bool]]:
    found: list[tuple[str, str, bool]] = []
    for workload in ("identity-16", "identity-64"):
        ours = results.median(workload, "slipway", "rate")
        if not ours:
            continue
        by_peer = {one.name: results.median(workload, one.name, "rate") or 0.0 for one in PEERS}
        triton = max(by_peer["triton"], by_peer["triton-batching"])
        pure = max(
            (by_peer[one.name], one.title)
            for one in PEERS
            if one.pure_python and one.name not in ("bare", "slipway", "slipway-threaded")
        )
        if triton:
            ratio = ours / triton
            found.append((f"{workload}: twice Triton's Python backend", f"{ratio:.1f}x", ratio >= 2))
        if pure[0]:
            ratio = ours / pure[0]
            found.append((f"{workload}: 20 times the best in Python ({pure[1]})", f"{ratio:.1f}x", ratio >= 20))
        if by_peer["bare"]:
            ratio = by_peer["bare"] / ours
            found.append((f"{workload}: within twice of bare asyncio", f"bare is {ratio:.2f}x", ratio <= 2))
    return found


def _goal_table(results: Results) -> str:
    lines = ["| goal, one core | measured | met |", "| --- | ---: | --- |"]
    lines += [f"| {goal} | {measured} | {'yes' if met else '**no**'} |" for goal, measured, met in goals(results)]
    return "\n".join(lines) + "\n"


def printed(results: Results) -> str:
    """What the command prints."""
    failed = [
        f"FAILED {workload} {peer}: {text}\n"
        for workload, one in results.failures.items()
        for peer, text in one.items()
    ]
    return f"{tables(results)}\n{_goal_table(results)}{''.join(failed)}"


def _machine() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    machine = f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"{machine}; medians of the rounds; errors: 0."


def write_page(results: Results) -> None:
    """Put the tables into the page, between its marks."""
    text = PAGE.read_text()
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    generated = f"\n\n{_machine()}\n\n## Goals\n\n{_goal_table(results)}\n## Figures\n\n{tables(results)}\n"
    PAGE.write_text(f"{before}{_BEGIN}{generated}{_END}{after}")

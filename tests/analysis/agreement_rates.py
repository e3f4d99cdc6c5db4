"""Simulated error rates of the comparison of answers; ``python -m tests.analysis.agreement_rates`` prints the table."""

import math
from dataclasses import dataclass
from functools import cache
from statistics import median

import numpy as np
from slipway.analysis.agreement import AgreementEvidence
from slipway.api.status import Counts

ROLLOUTS = 400
WINDOWS = 60
PER_WINDOW = 40
LOOK_EVERY = 3
BOUND = math.log(1 / 0.05)


@dataclass(frozen=True)
class Scene:
    """A candidate that differs in ``noise + excess`` of its answers beside a stable that differs from itself in
    ``noise``; ``tolerance`` is 1 - minValue."""

    name: str
    noise: float
    excess: float
    tolerance: float = 0.01


@dataclass(frozen=True)
class Rates:
    """Shares of rollouts in which harm or safety was ever found, and comparisons until then."""

    harmful: float
    safe: float
    to_harm: float | None
    to_safety: float | None


SCENES = (
    Scene("never differs", 0.0, 0.0),
    Scene("as noisy as stable, 5 %", 0.05, 0.0, 0.05),
    Scene("at the margin, no noise", 0.0, 0.01),
    Scene("at the margin, noise 0.2 %", 0.002, 0.01),
    Scene("at the margin, noise 10 %", 0.1, 0.01),
    Scene("at the margin of 5 %, noise 30 %", 0.3, 0.05, 0.05),
    Scene("differs in 5 %", 0.0, 0.05),
    Scene("differs in 20 % beyond noise of 5 %", 0.05, 0.2),
)


@cache
def rates(scene: Scene, seed: int = 7) -> Rates:
    """Look again and again at many rollouts, as the operator does; a quarter as many comparisons are with itself."""
    random = np.random.default_rng(seed)
    shape = (ROLLOUTS, WINDOWS)
    differing = random.binomial(PER_WINDOW, scene.noise + scene.excess, shape).cumsum(axis=1)
    own = random.binomial(PER_WINDOW // 4, scene.noise, shape).cumsum(axis=1)
    harms, safeties = [], []
    for rollout in range(ROLLOUTS):
        harm = safety = None
        for window in range(1, WINDOWS, LOOK_EVERY):
            done = PER_WINDOW * (window + 1)
            seen = AgreementEvidence(
                Counts(requests=done, bad=int(differing[rollout, window])),
                Counts(requests=done // 4, bad=int(own[rollout, window])),
                scene.tolerance,
            )
            harm = done if harm is None and seen.harm >= BOUND else harm
            safety = done if safety is None and seen.safety >= BOUND else safety
        harms += [harm] if harm else []
        safeties += [safety] if safety else []
    return Rates(
        len(harms) / ROLLOUTS,
        len(safeties) / ROLLOUTS,
        median(harms) if harms else None,
        median(safeties) if safeties else None,
    )


def table() -> str:
    """The table of the documentation."""
    lines = [
        "| stable and candidate | found harmful | comparisons to it (median)"
        " | found safe | comparisons to it (median) |",
        "| --- | --- | --- | --- | --- |",
    ]
    for scene in SCENES:
        found = rates(scene)
        lines.append(
            f"| {scene.name}; tolerated {scene.tolerance:.0%} | {found.harmful:.1%} | {_count(found.to_harm)}"
            f" | {found.safe:.1%} | {_count(found.to_safety)} |"
        )
    return "\n".join(lines)


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


if __name__ == "__main__":
    print(table())

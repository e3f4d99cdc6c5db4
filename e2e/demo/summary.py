"""What the demo shows in the end, computed from the requests as sent and the timeline as seen."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from scipy.stats import binom

from e2e.demo.load import Answer, summarise_latency
from e2e.demo.timeline import Look

__all__ = ["Share", "Summary", "shares"]

CONFIDENCE = 0.999
EDGE_SECONDS = 0.3
"""Requests this close to a change of weight are left out: they may have met either split."""


@dataclass(frozen=True)
class Share:
    """Requests that a candidate got while it had one confirmed weight."""

    version: str
    weight: int
    requests: int
    hits: int
    low: int
    high: int
    """Bounds of the binomial 99.9 % interval."""

    @property
    def fits(self) -> bool:
        """Whether the share observed is what the weight promises."""
        return self.low <= self.hits <= self.high

    def __str__(self) -> str:
        share = 100 * self.hits / self.requests if self.requests else 0.0
        bounds = f"99.9 % interval {100 * self.low / self.requests:.1f} to {100 * self.high / self.requests:.1f} %"
        return f"{self.version} at {self.weight} %: {self.hits} of {self.requests} requests = {share:.1f} % ({bounds})"


@dataclass
class Summary:
    """The demo in numbers."""

    first_prediction_seconds: float = 0.0
    """From kubectl apply to the first answer."""
    sent: int = 0
    failed_before_broken: int = 0
    """Failed requests while only good versions were live."""
    failed_by_broken: int = 0
    """Failed answers of the version broken on purpose."""
    failed_by_others: int = 0
    """Failed requests that another version, or none, is to blame for while the broken one was live."""
    shares: list[Share] = field(default_factory=list)
    promoted: bool = False
    rolled_back: bool = False
    harm_to_zero_seconds: float = 0.0
    """From the first bad answer of the broken version to weight 0."""
    p99_seconds: float = 0.0
    accuracy: dict[str, float] = field(default_factory=dict)
    """Share of right answers by version."""
    most_replicas: int = 0

    @property
    def faults(self) -> list[str]:
        """Everything that should not have happened."""
        found = [f"share of {share}" for share in self.shares if share.version == "v2" and not share.fits]
        if self.failed_before_broken or self.failed_by_others:
            found.append(f"{self.failed_before_broken + self.failed_by_others} requests failed that should not have")
        if not self.promoted:
            found.append("v2 was not promoted")
        if not self.rolled_back:
            found.append("v3 was not rolled back")
        if {share.weight for share in self.shares if share.version == "v2"} != {5, 25, 50}:
            found.append("not every step of v2 was observed")
        return found

    def to_json(self) -> dict[str, Any]:
        """For tests and scripts."""
        return asdict(self) | {"faults": self.faults}

    def lines(self) -> list[str]:
        """For people."""
        return [
            f"kubectl apply to first prediction   {self.first_prediction_seconds:.1f} s",
            f"requests sent                       {self.sent}",
            f"failed while v1 and v2 were live    {self.failed_before_broken}",
            f"failed because v3 is broken         {self.failed_by_broken}",
            f"failed for any other reason         {self.failed_by_others}",
            f"latency p99, as clients saw it      {1000 * self.p99_seconds:.0f} ms",
            f"most replicas at a time             {self.most_replicas}",
            *(f"share                               {share}" for share in self.shares),
            "right answers                       "
            + ", ".join(f"{version} {100 * share:.1f} %" for version, share in sorted(self.accuracy.items())),
            f"v2 promoted                         {'yes' if self.promoted else 'no'}",
            f"v3 rolled back                      {'yes' if self.rolled_back else 'no'}",
            f"first bad answer of v3 to weight 0  {self.harm_to_zero_seconds:.1f} s",
        ]


def shares(looks: Sequence[Look], answers: Sequence[Answer]) -> list[Share]:
    """The share of requests in each stretch of time in which a candidate had one confirmed weight."""
    found: list[Share] = []
    for (version, weight), begin, end in _stretches(looks):
        inside = [
            answer
            for answer in answers
            # A load generator that was held up sends late: what was answered after the end may have been sent after it.
            if begin + EDGE_SECONDS <= answer.at < end - EDGE_SECONDS and answer.at + answer.seconds < end
        ]
        if len(inside) < 50:
            continue
        low, high = binom.interval(CONFIDENCE, len(inside), weight / 100)
        hits = sum(1 for answer in inside if answer.version == version)
        found.append(Share(version, weight, len(inside), hits, int(low), int(high)))
    return found


def _stretches(looks: Sequence[Look]) -> list[tuple[tuple[str, int], float, float]]:
    """((version, weight), begin, end) from the times in the rollout's status."""
    stretches: list[tuple[tuple[str, int], float, float]] = []
    for before, look in itertools.pairwise(looks):
        rollout = before.rollout
        if rollout.get("stage") != "Observing" or not rollout.get("from"):
            continue
        begin = datetime.fromisoformat(rollout["weightAppliedAt"]).timestamp()
        key = (str(rollout["to"]), before.weight(str(rollout["to"])))
        written = look.rollout.get("weightWrittenAt") or ""
        moved = written and written != rollout.get("weightWrittenAt")
        end = datetime.fromisoformat(written).timestamp() if moved else look.at
        if stretches and stretches[-1][0] == key and stretches[-1][1] == begin:
            stretches[-1] = (key, begin, end)
        else:
            stretches.append((key, begin, end))
    return stretches


def latency_of(answers: Sequence[Answer]) -> float:
    """p99 in seconds over all answers."""
    return summarise_latency(answers, 0.99)

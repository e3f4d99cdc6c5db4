"""The evidence of one check as numbers, and its exact way into the status and back."""

import math
from dataclasses import dataclass, field, replace
from typing import Self

from slipway.analysis.evidence import HARM_ALTERNATIVES, SAFETY_WEIGHTS, HarmTest, SafetyTest
from slipway.analysis.windows import Window
from slipway.api.scalars import DecimalString
from slipway.api.status import CheckStatus, Counts
from slipway.api.timestamps import format_time, parse_time

__all__ = ["Ledger", "decimal"]

GUARD_PODS = 2


@dataclass(frozen=True, slots=True)
class Ledger:
    """What has been counted for one check in one rollout."""

    candidate: Counts = field(default_factory=Counts)
    stable: Counts = field(default_factory=Counts)
    harm: tuple[float, ...] = ()
    """Log wealth of the alternatives against the candidate."""
    safe: tuple[float, ...] = ()
    """Log wealth of the alternatives for the candidate."""
    counted: float | None = None
    """End of the last window counted, in seconds since the epoch."""
    windows: int = 0
    """Windows with requests of the candidate."""
    bad_windows: int = 0
    silent_windows: int = 0
    pods: tuple[str, ...] = ()
    bad_pods: tuple[str, ...] = ()

    @classmethod
    def of(cls, status: CheckStatus) -> Self:
        """Resume from the status; logarithms that others broke start anew rather than stop the rollout."""
        harm = tuple(log.number for log in status.harm_log)
        safe = tuple(log.number for log in status.safe_log)
        return cls(
            candidate=status.candidate,
            stable=status.stable,
            harm=harm if len(harm) == len(HARM_ALTERNATIVES) else (),
            safe=safe if len(safe) == len(SAFETY_WEIGHTS) else (),
            counted=parse_time(status.window),
            windows=status.windows,
            bad_windows=status.bad_windows,
            silent_windows=status.silent_windows,
            pods=status.pods,
            bad_pods=status.bad_pods,
        )

    def write(self, status: CheckStatus) -> CheckStatus:
        """The status with this evidence in it."""
        return status.model_copy(
            update={
                "candidate": self.candidate,
                "stable": self.stable,
                "harm_log": tuple(decimal(log) for log in self.harm),
                "safe_log": tuple(decimal(log) for log in self.safe),
                "window": format_time(self.counted) if self.counted is not None else "",
                "windows": self.windows,
                "bad_windows": self.bad_windows,
                "silent_windows": self.silent_windows,
                "pods": self.pods,
                "bad_pods": self.bad_pods,
            }
        )

    def count(self, window: Window, harm: HarmTest, safety: SafetyTest) -> "Ledger":
        """The ledger after one more window, its bets settled."""
        counted, counts = self.tally(window), window.counts
        if not counts.candidate:
            return counted
        return replace(
            counted,
            harm=harm.advance(self.harm, counted.windows, counts),
            safe=safety.advance(self.safe, counts),
        )

    def tally(self, window: Window) -> "Ledger":
        """The ledger with the requests of one more window."""
        counts = window.counts
        stable = _plus(self.stable, counts.stable, counts.stable_bad)
        if not counts.candidate:
            silent = self.silent_windows + (1 if counts.stable else 0)
            return replace(self, stable=stable, counted=window.end / 1000, silent_windows=silent)
        return replace(
            self,
            candidate=_plus(self.candidate, counts.candidate, counts.candidate_bad),
            stable=stable,
            counted=window.end / 1000,
            windows=self.windows + 1,
            bad_windows=self.bad_windows + (1 if counts.candidate_bad else 0),
            silent_windows=0,
            pods=_first(self.pods, window.candidate.pods()),
            bad_pods=_first(self.bad_pods, window.candidate.bad_pods()),
        )


def decimal(number: float) -> DecimalString:
    """A number in the shortest notation that reads back as the same number."""
    if not math.isfinite(number):
        raise ValueError(f"{number!r} is not a finite number")
    return DecimalString(repr(number).replace("e+", "e"))


def _plus(counts: Counts, requests: int, bad: int) -> Counts:
    return Counts(requests=counts.requests + requests, bad=counts.bad + bad)


def _first(known: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return (*known, *(pod for pod in more if pod not in known))[:GUARD_PODS]

"""One assessment's look at one check: count the windows that have closed, then judge."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slipway.analysis import wording
from slipway.analysis.availability import Silence
from slipway.analysis.evidence import HarmTest, SafetyTest
from slipway.analysis.forecast import requests_needed
from slipway.analysis.ledger import Ledger
from slipway.analysis.margins import Margin
from slipway.analysis.reasons import Reason
from slipway.analysis.windows import (
    BOUND_TOLERANCE,
    Series,
    Source,
    Span,
    closed_windows,
    error_series,
    latency_bound,
    latency_series,
)
from slipway.api.rollout import Check
from slipway.api.samples import MetricsView, RevisionMetrics
from slipway.api.scalars import DecimalString
from slipway.api.status import CheckStatus, Verdict
from slipway.api.timestamps import whole_second

__all__ = ["FEWEST_WINDOWS", "Trial"]

FEWEST_WINDOWS = 2
"""Distinct windows that either verdict needs."""
FEWEST_PODS = 2
"""Pods with bad requests that harm needs where several pods answer."""
QUIET_WINDOWS = 3
"""Windows after which silence gets a name."""

SeriesOf = Callable[[RevisionMetrics], Iterator[Series]]


@dataclass(frozen=True, slots=True)
class Trial:
    """What all checks of one assessment share; times in seconds since the epoch."""

    metrics: MetricsView
    candidate: str
    stable: str
    interval: float
    """Seconds of a window, as the user asked for."""
    alpha: float
    checks: int
    """Number of checks among which the chance of a false alarm is divided."""
    counting_from: float
    now: float
    silence: Silence | None
    """Why the metrics say nothing at present."""

    def judge(self, check: Check, tolerances: Margin, before: CheckStatus) -> CheckStatus:
        """The check's status after the windows that have closed since."""
        harm = HarmTest(tolerances.ratio, self.checks / self.alpha)
        safety = SafetyTest(tolerances.ratio, tolerances.value, 1 / self.alpha)
        ledger, lack, note = Ledger.of(before), self.silence, ""
        if self.metrics.available:
            source, note = self._source(tolerances)
            unmeasured = self._unmeasured(tolerances) if lack is None else ""
            if unmeasured:
                lack = Silence(Reason.NO_HISTOGRAM, unmeasured)
            elif source is not None:
                arms = (Source(self.candidate, source), Source(self.stable, source))
                for window in closed_windows(self.metrics, arms, self.span(ledger)):
                    ledger = ledger.count(window, harm, safety)
            elif lack is None and note:
                lack, note = Silence(Reason.METRICS_UNAVAILABLE, note), ""
        verdict, reason, message = self._verdict(check, ledger, harm, safety, lack)
        need = requests_needed(ledger, harm, safety, check.min_samples) if verdict is Verdict.UNDECIDED else None
        if reason is Reason.COLLECTING_EVIDENCE and need is not None:
            message += f"; about {need} more requests of the candidate needed"
        return ledger.write(before).model_copy(
            update={
                "verdict": verdict,
                "reason": reason,
                "message": f"{message}; {note}" if note else message,
                "evidence": DecimalString(f"{harm.wealth(ledger.harm, ledger.windows):.4g}".replace("e+", "e")),
                "requests_needed": need,
            }
        )

    @property
    def _arms(self) -> tuple[str, str]:
        return self.candidate, self.stable

    def span(self, ledger: Ledger) -> Span:
        """The windows that have closed since."""
        return Span.of(self.interval, self.metrics, self.counting_from, ledger.counted, self.now)

    def _source(self, tolerances: Margin) -> tuple[SeriesOf | None, str]:
        """The counters that a check reads, and what is to be said of them; None where there are none to read."""
        if tolerances.threshold is None:
            return error_series, ""
        threshold = tolerances.threshold
        bound = latency_bound(self.metrics, self._arms, threshold)
        if bound is None:
            known = any(self.metrics.of(revision).latencies for revision in self._arms)
            return None, f"the servers' histograms share no bound at or above {threshold:g}s" if known else ""
        note = "" if bound <= threshold + BOUND_TOLERANCE else wording.rounded_bound(threshold, bound)
        return lambda metrics: latency_series(metrics, bound), note

    def _unmeasured(self, tolerances: Margin) -> str:
        """Which version's requests are counted while nobody measures how long they take; empty for none."""
        if tolerances.threshold is None:
            return ""
        for revision in self._arms:
            metrics = self.metrics.of(revision)
            if not metrics.latencies and any(value for series in metrics.requests for _, value in series.samples):
                return (
                    f"neither the servers of {revision} nor the mesh in front of them export a histogram of latencies:"
                    " see docs/engines.md"
                )
        return ""

    def _verdict(
        self, check: Check, ledger: Ledger, harm: HarmTest, safety: SafetyTest, lack: Silence | None
    ) -> tuple[Verdict, Reason, str]:
        """The verdict with its reason and the numbers in words."""
        against = harm.wealth(ledger.harm, ledger.windows)
        proof = safety.wealth(ledger.safe)
        facts = wording.facts(ledger, (against, harm.bound), (proof, safety.bound))
        enough = ledger.windows >= FEWEST_WINDOWS and ledger.candidate.requests >= check.min_samples
        if enough and against >= harm.bound and _spread(ledger):
            return Verdict.HARMFUL, Reason.HARM_DETECTED, facts
        if lack is not None:
            return Verdict.UNDECIDED, lack.reason, lack.message
        if ledger.silent_windows >= QUIET_WINDOWS:
            message = f"no request reached the candidate in {ledger.silent_windows} windows in which stable had some"
            return Verdict.UNDECIDED, Reason.NO_CANARY_TRAFFIC, message
        if enough and against < harm.bound and proof >= safety.bound:
            return Verdict.SAFE, Reason.EVIDENCE_OF_SAFETY, facts
        return Verdict.UNDECIDED, *self._open(ledger, facts, against >= harm.bound)

    def _open(self, ledger: Ledger, facts: str, suspicious: bool) -> tuple[Reason, str]:
        """Why neither test has come to an end."""
        quiet = self.span(ledger).closed
        idle = not ledger.candidate.requests and not ledger.stable.requests
        if quiet >= QUIET_WINDOWS or (idle and quiet):
            since = whole_second(self.counting_from if ledger.counted is None else ledger.counted)
            return Reason.NO_TRAFFIC, f"no requests since {since}; {facts}"
        if ledger.candidate.requests and not ledger.stable.requests:
            return Reason.NO_STABLE_BASELINE, f"stable has had no requests to compare with; {facts}"
        if suspicious and ledger.bad_windows < FEWEST_WINDOWS:
            return Reason.COLLECTING_EVIDENCE, f"{facts}; all bad requests came in one burst"
        if suspicious:
            return Reason.COLLECTING_EVIDENCE, f"{facts}; all bad requests came from the pod {''.join(ledger.bad_pods)}"
        return Reason.COLLECTING_EVIDENCE, facts


def _spread(ledger: Ledger) -> bool:
    """Whether the bad requests come from several windows and, where several pods answer, from several of them."""
    several = len(ledger.pods) >= FEWEST_PODS
    return ledger.bad_windows >= FEWEST_WINDOWS and (not several or len(ledger.bad_pods) >= FEWEST_PODS)

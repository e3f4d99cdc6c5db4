"""From samples of pods to the sample of their revision."""

from collections.abc import Callable, Iterable, Sequence

from slipway.api.samples import Quality, Sample

__all__ = ["largest", "mean", "merge", "total"]

_USABLE = (Quality.OK, Quality.PARTIAL)
_WORST_FIRST = (Quality.INVALID, Quality.STALE, Quality.MISSING)


def merge(
    samples: Iterable[Sample], combine: Callable[[Sequence[float], int], float], silent: Sequence[str] = ()
) -> Sample:
    """Combine the samples of pods; ``silent`` are pods that ought to answer and do not.

    ``combine`` is given the usable values and the number that there ought to be. Where only some say something usable
    the result is PARTIAL and a lower bound; where none does, it has the most telling of their qualities.
    """
    known = tuple(samples)
    usable = [sample for sample in known if sample.quality in _USABLE]
    if not usable:
        for quality in _WORST_FIRST:
            found = next((sample for sample in known if sample.quality is quality), None)
            if found is not None:
                return Sample(0.0, quality, found.at, found.reason)
        return Sample(reason=f"no answer from {', '.join(silent)}" if silent else "no pod is scraped")
    lacking = [sample.reason for sample in known if sample.quality is not Quality.OK and sample.reason]
    lacking += [f"no answer from {pod}" for pod in silent]
    whole = not silent and all(sample.quality is Quality.OK for sample in known)
    return Sample(
        combine([sample.value for sample in usable], len(known) + len(silent)),
        Quality.OK if whole else Quality.PARTIAL,
        max(sample.at for sample in usable),
        "" if whole else "; ".join(lacking[:3]),
    )


def mean(values: Sequence[float], expected: int) -> float:
    """Arithmetic mean; those that say nothing count as 0: nothing is ordered for what they might have said."""
    return sum(values) / expected


def total(values: Sequence[float], _: int) -> float:
    """Sum."""
    return sum(values)


def largest(values: Sequence[float], _: int) -> float:
    """Maximum."""
    return max(values)

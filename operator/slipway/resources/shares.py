"""Who gets which share of the traffic: the weights of the default route and the versions that can be pinned."""

from collections.abc import Mapping, Sequence

from slipway.api.status import Role, VersionStatus

__all__ = ["pinned", "weights"]

_PIN_PRECEDENCE = (Role.CANDIDATE, Role.STABLE, Role.EXPERIMENT, Role.PREVIOUS)


def weights(routed: Sequence[VersionStatus]) -> Mapping[str, int]:
    """Weight in per cent per revision, summing to 100, 0 included; ``routed`` are the entries with a subset (not none).

    Without any weight, stable (or the first) gets everything. Weight of a revision that has no subset goes to the
    others in proportion: the mesh would answer 503 for it.
    """
    intended = {entry.revision: entry.weight.intended for entry in routed}
    total = sum(intended.values())
    if total == 100:
        return intended
    if total == 0:
        receiver = next((entry for entry in routed if entry.role is Role.STABLE), routed[0])
        return {entry.revision: 100 if entry is receiver else 0 for entry in routed}
    return _apportion(intended, total)


def _apportion(shares: Mapping[str, int], total: int) -> Mapping[str, int]:
    """Shares scaled to sum to 100, the largest remainders rounded up first; 0 stays 0."""
    scaled = {name: divmod(share * 100, total) for name, share in shares.items()}
    missing = 100 - sum(quotient for quotient, _ in scaled.values())
    by_remainder = sorted(scaled, key=lambda name: -scaled[name][1])
    return {name: scaled[name][0] + (name in by_remainder[:missing]) for name in shares}


def pinned(routed: Sequence[VersionStatus]) -> Sequence[VersionStatus]:
    """The entries that a request can ask for by version name, one per version: the newest role of each.

    A revision without ready pods or about to go is not among them: such requests take the default route.
    """
    chosen: dict[str, VersionStatus] = {}
    for role in _PIN_PRECEDENCE:
        for entry in routed:
            if entry.role is role and entry.ready_replicas > 0:
                chosen.setdefault(entry.name, entry)
    return [chosen[name] for name in sorted(chosen)]

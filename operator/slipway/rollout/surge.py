"""Two revisions that share a bounded number of GPUs: how many pods of each there may be, and what weight follows.

``maxSurgeGPUs`` bounds what a rollout uses beyond stable's own GPUs. Where the candidate does not fit beside stable,
pods are swapped in place: stable gives up pods one at a time, a candidate pod takes their GPUs, and the weight follows
in shares of one pod.
"""

from dataclasses import dataclass

__all__ = ["Surge"]


@dataclass(frozen=True, slots=True)
class Surge:
    """The GPUs of one rollout."""

    whole: int
    """Pods of stable when the rollout began; at least 1."""
    stable_gpus: int
    """GPUs of one pod of stable."""
    candidate_gpus: int
    """GPUs of one pod of the candidate; at least 1."""
    allowed: int
    """GPUs beyond those of stable."""
    held: int = 0
    """GPUs that leaving revisions still hold."""

    def candidates_beside(self, stable_pods: int) -> int:
        """Most candidate pods while stable has that many pods."""
        given_up = max(0, self.whole - stable_pods) * self.stable_gpus
        return max(0, self.allowed - self.held + given_up) // self.candidate_gpus

    def stable_beside(self, candidate_pods: int) -> int:
        """Most pods of stable, up to the whole, while the candidate has that many pods."""
        over = candidate_pods * self.candidate_gpus - self.allowed
        if over <= 0 or self.stable_gpus <= 0:
            return self.whole
        return max(0, self.whole - -(-over // self.stable_gpus))

    def most(self, least_stable: int) -> int:
        """Most candidate pods that there can ever be while stable keeps ``least_stable`` pods; leavers are gone."""
        given_up = max(0, self.whole - least_stable) * self.stable_gpus
        return max(0, self.allowed + given_up) // self.candidate_gpus

    def share(self, pods: int) -> int:
        """Weight in per cent that so many of the whole's pods stand for, rounded up."""
        return 100 - 100 * max(0, self.whole - pods) // self.whole

    def candidate_limit(self, ready: int, most: int) -> int:
        """The weight that ready candidate pods take; all of it when there can be no more of them."""
        return 100 if ready >= most else self.share(ready)

    def candidate_least(self, stable_pods: int) -> int:
        """The weight that stable's remaining pods leave to the candidate."""
        return self.share(self.whole - stable_pods)

    def plan(self, goal: int, needed: int, least_stable: int) -> tuple[int, int]:
        """Pods of candidate and of stable for a goal in per cent; ``needed`` are what the goal takes by load."""
        most = self.most(least_stable)
        for pods in range(max(1, min(needed, most)), most + 1):
            stable = self.stable_beside(pods)
            if self.candidate_limit(pods, most) >= max(goal, self.candidate_least(stable)):
                return pods, stable
        return most, max(least_stable, self.stable_beside(most))

"""The invariants of a rollout over random sequences of events, crashes of the operator among them."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from slipway.api.judgement import Judgement
from slipway.api.status import ModelDeploymentStatus, Outcome, Stage, Verb, Verdict
from slipway.api.timestamps import parse_time

from tests.rollout.world import HARMFUL, SAFE, UNDECIDED, VERSIONS, World, raw_spec

ENDED_BADLY = (Outcome.ABORTED, Outcome.ROLLED_BACK, Outcome.FAILED, Outcome.SUPERSEDED, Outcome.REVERTED)


class RolloutMachine(RuleBasedStateMachine):
    """Random users, pods, metrics and crashes against the machine."""

    world: World
    actions = 0
    ending: tuple[str, int] | None = None

    @initialize(
        manual=st.booleans(),
        on_harm=st.sampled_from(["Rollback", "Pause", "StepDown"]),
        demand=st.sampled_from([None, 50.0, 200.0]),
        strategy=st.sampled_from(["Canary", "Canary", "BlueGreen", "Shadow", "Recreate"]),
        surge=st.sampled_from([-1, -1, 0, 1, 3]),
        gpus=st.sampled_from([(1, 1, 1), (1, 2, 1), (2, 1, 1), (1, 0, 1)]),
        leave=st.sampled_from([0.0, 5.0]),
    )
    def start(
        self,
        manual: bool,
        on_harm: str,
        demand: float | None,
        strategy: str,
        surge: int,
        gpus: tuple[int, int, int],
        leave: float,
    ) -> None:
        rollout: dict[str, Any] = {
            "promotion": "Manual" if manual else "Automatic",
            "analysis": {"onHarm": on_harm},
            "strategy": strategy,
            "maxSurgeGPUs": surge,
            "shadow": {"percent": 10},
        }
        self.world = World(raw_spec("v1", **rollout))
        self.world.demand, self.world.per_replica = demand, 50.0
        self.world.gpus = dict(zip(VERSIONS, gpus, strict=True))
        self.world.leave_seconds = leave
        self.held: dict[str, int] = {}

    @rule(seconds=st.sampled_from([0.0, 1.0, 3.0, 11.0, 40.0, 130.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.reconcile()

    @rule()
    def many_reconciles(self) -> None:
        self.world.run(12)

    @rule()
    def operator_dies_before_the_status(self) -> None:
        self.world.reconcile(persist=False)

    @rule()
    def operator_dies_before_the_effects(self) -> None:
        self.world.reconcile(apply=False)

    @rule(version=st.sampled_from(VERSIONS))
    def user_serves(self, version: str) -> None:
        if any(item.version == version for item in self.world.spec.traffic.experiments):
            return
        self.world.serve(version)
        self.world.reconcile()

    @rule(version=st.sampled_from(VERSIONS), weight=st.sampled_from([0, 10, 40]), matched=st.booleans())
    def user_experiments(self, version: str, weight: int, matched: bool) -> None:
        if version == self.world.raw["serve"]:
            return
        match = [{"headers": {"x-group": {"exact": "beta"}}}] if matched else []
        experiments = [{"version": version, "weight": weight, "match": match}]
        self.world.raw = self.world.raw | {"traffic": {"settle": "2s", "experiments": experiments}}
        self.world.reconcile()

    @rule()
    def user_ends_experiments(self) -> None:
        self.world.raw = self.world.raw | {"traffic": {"settle": "2s"}}
        self.world.reconcile()

    @rule(replicas=st.sampled_from([1, 2, 4]))
    def stable_is_scaled(self, replicas: int) -> None:
        if self.world.status.rollout is None or self.world.status.rollout.stage is not Stage.FINISHED:
            return
        entries = [
            entry.model_copy(update={"replicas": replicas}) if entry.role.value == "Stable" else entry
            for entry in self.world.status.versions
        ]
        self.world.status = self.world.status.model_copy(update={"versions": tuple(entries)})
        self.world.reconcile()

    @rule(verb=st.sampled_from([verb.value for verb in Verb]))
    def user_acts(self, verb: str) -> None:
        self.actions += 1
        self.world.act(verb, f"a{self.actions}")
        self.world.reconcile()

    @rule(judgement=st.sampled_from([SAFE, HARMFUL, UNDECIDED]))
    def evidence_changes(self, judgement: Judgement) -> None:
        self.world.judge(judgement)
        self.world.reconcile()

    @rule(tripped=st.booleans())
    def breaker(self, tripped: bool) -> None:
        self.world.breaker = Judgement(Verdict.HARMFUL, "CrashLoop", "3 restarts") if tripped else None
        self.world.reconcile()

    @rule(version=st.sampled_from(VERSIONS), crashes=st.booleans())
    def pods_fail_or_mend(self, version: str, crashes: bool) -> None:
        for pod in self.world.pods.get(self.world.revision(version), []):
            pod.crashes = crashes
        self.world.reconcile()

    @rule(version=st.sampled_from(VERSIONS))
    def a_pod_is_replaced(self, version: str) -> None:
        pods = self.world.pods.get(self.world.revision(version), [])
        if pods:
            pods[0].ready_at = self.world.now + 7
        self.world.reconcile()

    @rule(demand=st.sampled_from([None, 10.0, 120.0, 1000.0]))
    def demand_changes(self, demand: float | None) -> None:
        self.world.demand = demand
        self.world.reconcile()

    @rule(seconds=st.sampled_from([1.0, 20.0, 1e9]))
    def pods_start_faster_or_slower(self, seconds: float) -> None:
        self.world.start_seconds = seconds

    @invariant()
    def weights_are_a_split(self) -> None:
        weights = [entry.weight.intended for entry in self.world.status.versions]
        assert all(isinstance(weight, int) and weight >= 0 for weight in weights)
        assert sum(weights) in (0, 100)
        had_weight = any(entry.weight.applied for entry in self.world.status.versions)
        assert sum(weights) == 100 or not had_weight

    @invariant()
    def no_weight_without_ready_pods_while_another_could_take_it(self) -> None:
        rollout = self.world.status.rollout
        returning = rollout is not None and rollout.stage is Stage.RETURNING
        settle = self.world.spec.traffic.settle.seconds
        live = list(self.world.status.versions)
        for entry in live:
            if entry.weight.intended == 0 or entry.ready_replicas > 0:
                continue
            able = [
                other
                for other in live
                if other.ready_replicas > 0
                and other.verified == "Passed"
                and other.subset
                and other.subset_at
                and other.role.value != "Retiring"
            ]
            able = [other for other in able if self._since(other.subset_at) >= settle]
            assert not able or returning, (entry, able)

    def _since(self, text: str) -> float:
        return self.world.now - (parse_time(text) or self.world.now)

    @invariant()
    def no_routed_subset_is_absent_from_the_rule(self) -> None:
        for entry in self.world.status.versions:
            assert entry.weight.intended == 0 or entry.subset
        assert {name for name, weight in self.world.weights.items() if weight} <= self.world.subsets

    @invariant()
    def a_candidate_on_its_way_back_never_gains(self) -> None:
        rollout = self.world.status.rollout
        if rollout is None or rollout.outcome not in ENDED_BADLY:
            self.ending = None
            return
        entry = self.world.status.revision(rollout.to_revision)
        if entry is None or entry.role.value != "Candidate":
            return
        weight = entry.weight.intended
        if self.ending is not None and self.ending[0] == rollout.id:
            assert weight <= self.ending[1]
        self.ending = (rollout.id, weight)

    @invariant()
    def a_version_with_applied_weight_keeps_its_pods(self) -> None:
        rollout = self.world.status.rollout
        given_up = {rollout.from_revision} if rollout is not None and self._may_stop_stable() else set()
        if rollout is not None and rollout.strategy.value == "Recreate" and rollout.stage is Stage.RETURNING:
            # The candidate is stopped before stable starts again, as it was the other way round.
            given_up.add(rollout.to_revision)
        for revision, weight in self.world.weights.items():
            if weight > 0 and revision not in given_up:
                assert self.world.pods.get(revision), f"{revision} has weight and no pods"

    def _may_stop_stable(self) -> bool:
        """Recreate stops stable, and a stable version that is broken gives up the GPUs that it holds in vain."""
        rollout = self.world.status.rollout
        assert rollout is not None
        entry = self.world.status.revision(rollout.from_revision)
        broken = entry is not None and entry.ready_replicas == 0
        return rollout.strategy.value == "Recreate" or (self.world.spec.rollout.max_surge_gpus >= 0 and broken)

    @invariant()
    def no_pod_is_added_beyond_the_gpus_allowed(self) -> None:
        world, rollout = self.world, self.world.status.rollout
        surge = world.spec.rollout.max_surge_gpus
        before, self.held = self.held, {}
        if rollout is None or rollout.stage is Stage.FINISHED or not rollout.from_revision or surge < 0:
            return
        versions = {world.revision(version): world.gpus[version] for version in VERSIONS}
        candidate = len(world.pods.get(rollout.to_revision, []))
        self.held = {rollout.id: candidate}
        if rollout.id in before and candidate > before[rollout.id]:
            stable = len(world.pods.get(rollout.from_revision, []))
            given_up = max(0, max(1, rollout.reference) - stable) * versions[rollout.from_revision]
            assert candidate * versions[rollout.to_revision] <= surge + given_up

    @invariant()
    def experiments_have_what_they_ask_for_or_nothing(self) -> None:
        asked = {self.world.revision(item.version): item.weight for item in self.world.spec.traffic.experiments}
        others = [entry for entry in self.world.status.versions if entry.role.value != "Experiment"]
        alone = not any(entry.ready_replicas and entry.weight.intended for entry in others)
        for entry in self.world.status.versions:
            if entry.role.value == "Experiment" and not alone and entry.revision in asked:
                assert entry.weight.intended <= asked[entry.revision]

    @invariant()
    def every_wait_has_a_reason_and_a_deadline(self) -> None:
        rollout = self.world.status.rollout
        if rollout is None or rollout.stage is Stage.FINISHED:
            return
        assert rollout.reason
        if rollout.outcome is None:
            assert rollout.deadline, rollout

    @invariant()
    def decisions_come_to_rest(self) -> None:
        """One rollout may end and the next begin: more does not follow while the world stands still."""
        kept = self.world.status
        for _ in range(4):
            before = self.world.status
            self.world.status = self.world.decide().status
            if self.world.status == before:
                break
        else:
            raise AssertionError("decisions do not come to rest")
        self.world.status = kept

    @invariant()
    def status_survives_its_json(self) -> None:
        wire = self.world.status.to_wire()
        assert ModelDeploymentStatus.from_wire(wire) == self.world.status


RolloutMachine.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestRolloutInvariants = RolloutMachine.TestCase


def test_the_same_request_gives_the_same_decision() -> None:
    world = World(raw_spec("v1"))
    world.run(3)
    assert world.decide() == world.decide()

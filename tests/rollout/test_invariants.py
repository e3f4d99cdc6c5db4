"""The invariants of a rollout over random sequences of events, crashes of the operator among them."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from slipway.api.judgement import Judgement
from slipway.api.status import ModelDeploymentStatus, Outcome, Stage, Verb, Verdict
from tests.rollout.world import HARMFUL, SAFE, UNDECIDED, VERSIONS, World, raw_spec

ENDED_BADLY = (Outcome.ABORTED, Outcome.ROLLED_BACK, Outcome.FAILED, Outcome.SUPERSEDED, Outcome.REVERTED)


class RolloutMachine(RuleBasedStateMachine):
    """Random users, pods, metrics and crashes against the machine."""

    world: World
    actions = 0
    ending: tuple[str, int] | None = None

    @initialize(
        manual=st.booleans(),
        on_harm=st.sampled_from(["Rollback", "Pause"]),
        demand=st.sampled_from([None, 50.0, 200.0]),
    )
    def start(self, manual: bool, on_harm: str, demand: float | None) -> None:
        promotion = "Manual" if manual else "Automatic"
        self.world = World(raw_spec("v1", promotion=promotion, analysis={"onHarm": on_harm}))
        self.world.demand, self.world.per_replica = demand, 50.0

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
        self.world.serve(version)
        self.world.reconcile()

    @rule(verb=st.sampled_from([verb.value for verb in Verb]))
    def user_acts(self, verb: str) -> None:
        self.actions += 1
        self.world.act(verb, f"a{self.actions}")
        self.world.reconcile()

    @rule(judgement=st.sampled_from([SAFE, HARMFUL, UNDECIDED]))
    def evidence_changes(self, judgement: Judgement) -> None:
        self.world.judgement = judgement
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
        live = [entry for entry in self.world.status.versions]
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
                and self.world.decide() is not None
                and other.role.value != "Retiring"
            ]
            able = [other for other in able if self._since(other.subset_at) >= settle]
            assert not able or returning, (entry, able)

    def _since(self, text: str) -> float:
        from slipway.api.timestamps import parse_time

        return self.world.now - (parse_time(text) or self.world.now)

    @invariant()
    def no_routed_subset_is_absent_from_the_rule(self) -> None:
        for entry in self.world.status.versions:
            assert entry.weight.intended == 0 or entry.subset
        assert set(self.world.weights) >= {name for name, weight in self.world.weights.items() if weight}
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
        for revision, weight in self.world.weights.items():
            if weight > 0:
                assert self.world.pods.get(revision), f"{revision} has weight and no pods"

    @invariant()
    def every_wait_has_a_reason_and_a_deadline(self) -> None:
        rollout = self.world.status.rollout
        if rollout is None or rollout.stage is Stage.FINISHED:
            return
        assert rollout.reason
        if rollout.outcome is None:
            assert rollout.deadline, rollout

    @invariant()
    def deciding_again_changes_nothing(self) -> None:
        first = self.world.decide().status
        kept = self.world.status
        self.world.status = first
        second = self.world.decide().status
        self.world.status = kept
        assert first == second

    @invariant()
    def status_survives_its_json(self) -> None:
        wire = self.world.status.to_wire()
        assert ModelDeploymentStatus.from_wire(wire) == self.world.status


RolloutMachine.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestRolloutInvariants = RolloutMachine.TestCase


def test_the_same_request_gives_the_same_decision() -> None:
    world = World(raw_spec("v1"))
    world.run(3)
    assert world.decide() == world.decide()

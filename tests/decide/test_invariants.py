"""The invariants of whole decisions over random sequences: pods, metrics that stop or lie, edits, dying operators."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from slipway.api.status import ModelDeploymentStatus, Stage, Verb, VersionStatus

from tests.decide.world import World, model_deployment

VERSIONS = ("v1", "v2", "v3")


class DecisionMachine(RuleBasedStateMachine):
    """Random users, clusters and metrics against the whole decision."""

    world: World
    actions = 0
    weight_before: tuple[str, int, bool] | None = None

    @initialize(
        strategy=st.sampled_from(["Target", "Threshold"]),
        missing=st.sampled_from(["Hold", "AtLeast"]),
        way=st.sampled_from(["Canary", "Canary", "BlueGreen", "Recreate"]),
        surge=st.sampled_from([-1, 0, 2]),
    )
    def start(self, strategy: str, missing: str, way: str, surge: int) -> None:
        scaling = {
            "minReplicas": 1,
            "maxReplicas": 5,
            "qps": {"target": 20, "upper": 30, "lower": 10},
            "strategy": strategy,
            "onMissingMetrics": missing,
            "fallbackReplicas": 3 if missing == "AtLeast" else 0,
            "cooldown": "20s",
            "stabilizationWindow": "20s",
        }
        rollout = model_deployment()["spec"]["rollout"] | {"strategy": way, "maxSurgeGPUs": surge}
        runtime = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        self.world = World(model_deployment(autoscaling=scaling, rollout=rollout, runtime=runtime))
        self.way = way

    @rule(seconds=st.sampled_from([1.0, 5.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.tick(seconds)

    @rule()
    def some_time_passes(self) -> None:
        self.world.run(24, step=3)

    @rule(persist=st.booleans())
    def the_operator_dies(self, persist: bool) -> None:
        self.world.reconcile(persist=persist, apply=False)

    @rule(version=st.sampled_from(VERSIONS))
    def user_serves(self, version: str) -> None:
        if any(item["version"] == version for item in self.world.raw["spec"]["traffic"].get("experiments", ())):
            return
        self.world.serve(version)
        self.world.tick()

    @rule(weight=st.sampled_from([None, 0, 30]))
    def user_experiments(self, weight: int | None) -> None:
        experiments = [] if weight is None else [{"version": "v3", "weight": weight}]
        if self.world.raw["spec"]["serve"] == "v3":
            return
        self.world.raw["spec"] = self.world.raw["spec"] | {"traffic": {"settle": "2s", "experiments": experiments}}
        self.world.tick()

    @rule(verb=st.sampled_from([verb.value for verb in Verb]))
    def user_acts(self, verb: str) -> None:
        self.actions += 1
        action = self.world.status.action.model_copy(update={"id": f"a{self.actions}", "verb": verb})
        self.world.status = self.world.status.model_copy(update={"action": action})
        self.world.tick()

    @rule(fault=st.sampled_from(["", "down", "silent", "nan"]))
    def metrics_change(self, fault: str) -> None:
        self.world.metrics_fault = fault
        self.world.tick()

    @rule(qps=st.sampled_from([0.0, 5.0, 60.0, 400.0]), rate=st.sampled_from([0.0, 0.5]))
    def load_changes(self, qps: float, rate: float) -> None:
        self.world.qps = qps
        self.world.error_rates["v2"] = rate

    @rule(version=st.sampled_from(VERSIONS), crashes=st.booleans())
    def pods_fail_or_mend(self, version: str, crashes: bool) -> None:
        for pod in self.world.pods.get(self.world.revision(version), []):
            pod.crashes = crashes
        self.world.tick()

    @rule()
    def a_bad_spec_and_back(self) -> None:
        good = self.world.raw["spec"]
        before = self.world.status
        self.world.raw["spec"] = good | {"serve": "v9"}
        decision = self.world.reconcile()
        assert not decision.apply
        assert [entry.weight.intended for entry in self.world.status.versions] == [
            entry.weight.intended for entry in before.versions
        ]
        self.world.raw["spec"] = good

    @invariant()
    def weights_are_a_split(self) -> None:
        weights = [entry.weight.intended for entry in self.world.status.versions]
        assert all(weight >= 0 for weight in weights)
        assert sum(weights) in (0, 100)

    @invariant()
    def replicas_stay_in_their_bounds(self) -> None:
        for entry in self.world.status.versions:
            assert 0 <= entry.replicas <= 5
            if entry.role.value == "Stable" and not self._may_be_stopped(entry):
                assert entry.replicas >= 1

    def _may_be_stopped(self, entry: VersionStatus) -> bool:
        """Recreate stops stable; one that is broken gives up the GPUs that it holds in vain."""
        return self.way == "Recreate" or entry.ready_replicas == 0

    @invariant()
    def whoever_gets_requests_has_pods(self) -> None:
        for revision, weight in self.world.weights.items():
            if weight > 0:
                entry = self.world.status.revision(revision)
                stopped = entry is not None and self._may_be_stopped(entry)
                assert stopped or self.world.pods.get(revision), f"{revision} has weight {weight} and no pods"
                assert revision in self.world.subsets

    @invariant()
    def without_metrics_nothing_moves_up_by_itself(self) -> None:
        rollout = self.world.status.rollout
        blind = self.world.metrics_fault in ("down", "silent")
        now = None
        if rollout is not None and rollout.stage is Stage.OBSERVING and not rollout.full:
            now = (rollout.id, rollout.step, blind)
        before = self.weight_before
        if before is not None and now is not None and blind and before[2] and before[0] == now[0]:
            approved = rollout is not None and rollout.by not in ("spec", "")
            assert now[1] <= before[1] or approved
        self.weight_before = now if now is not None else before if blind else None

    @invariant()
    def every_condition_is_well_formed(self) -> None:
        kinds = [condition.type for condition in self.world.status.conditions]
        assert len(kinds) == len(set(kinds))
        assert all(condition.reason.isalnum() for condition in self.world.status.conditions)

    @invariant()
    def a_restarted_operator_decides_the_same(self) -> None:
        wire = self.world.status.to_wire()
        assert ModelDeploymentStatus.from_wire(wire) == self.world.status
        assert self.world.decide() == self.world.decide()

    @invariant()
    def deciding_again_comes_to_rest(self) -> None:
        """One rollout may end, the next begin and its pods be ordered: more does not follow without the world."""
        kept = self.world.status
        for _ in range(6):
            before = self.world.status
            self.world.status = self.world.decide().status
            if self.world.status == before:
                break
        else:
            raise AssertionError("decisions do not come to rest")
        self.world.status = kept


DecisionMachine.TestCase.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestDecisionInvariants = DecisionMachine.TestCase

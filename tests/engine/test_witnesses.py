"""Those who look on are told, and can do no harm."""

from typing import Any

from slipway.api.events import EventRecord
from slipway.api.status import ModelDeploymentStatus, Phase
from slipway.engine.engine import Engine
from slipway.engine.reconcile import Outcome
from slipway.kube.kinds import MODEL_DEPLOYMENT

from tests.engine.test_engine import KEY, Stage, mdep
from tests.engine.test_reconcile import decision
from tests.kube.memory_api import status


class Witness:
    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.measures = 0
        self.decisions: list[tuple[str, ModelDeploymentStatus]] = []

    def measured(self) -> None:
        self.measures += 1
        if self.fails:
            raise RuntimeError("broken")

    def decided(self, raw: Any, status: ModelDeploymentStatus, now: float) -> None:
        self.decisions.append((raw["metadata"]["name"], status))
        if self.fails:
            raise RuntimeError("broken")


async def reconciled(engine: Engine, stage: Stage) -> Outcome:
    stage.api.put(mdep())
    return await engine._reconciler.reconcile(KEY)


async def test_witnesses_are_told_of_decisions_and_measurements_and_a_broken_one_fails_nothing(caplog):
    events = (EventRecord("Told", "afterwards"),)
    stage = Stage(decide=lambda *inputs: decision(events=events))
    broken, whole = Witness(fails=True), Witness()
    stage.engine.attend(broken)
    stage.engine.attend(whole)
    outcome = await reconciled(stage.engine, stage)
    assert outcome.result == "ok"
    assert [(name, found.phase) for name, found in whole.decisions] == [("m", Phase.PENDING)]
    assert len(broken.decisions) == 1
    stage.engine.event(MODEL_DEPLOYMENT, "ADDED", mdep(1))
    stage.engine.queue_active()
    assert (broken.measures, whole.measures) == (1, 1)
    assert "could not be told to Witness" in caplog.text


async def test_a_write_that_meets_a_newer_object_is_told_to_nobody():
    stage = Stage()
    witness = Witness()
    stage.engine.attend(witness)
    stage.api.put(mdep())
    stage.api.faults.append(lambda call: status(409, "Conflict", "changed") if call.method == "PATCH" else None)
    assert (await stage.engine._reconciler.reconcile(KEY)).result == "conflict"
    assert witness.decisions == []

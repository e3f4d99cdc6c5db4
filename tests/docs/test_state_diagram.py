"""The diagram of a rollout's stages has exactly the transitions that the machine makes."""

import random
import re

import pytest
from slipway.api.status import Stage
from slipway.rollout.draft import Draft

from tests.docs.blocks import ROOT, blocks
from tests.rollout.world import HARMFUL, SAFE, UNDECIDED, World, raw_spec

EDGE = re.compile(r"^\s*(\w+) --> (\w+):", re.M)
SEEDS = (*range(16), 16, 87, 188)
"""Worlds that make every transition between them; the last ones a rare one each."""
VERBS = ["Promote", "PromoteFull", "Pause", "Resume", "Abort", "Retry"]


def drawn() -> set[tuple[str, str]]:
    [block] = [block for block in blocks() if block.language == "mermaid" and "concepts" in block.page.name]
    return set(EDGE.findall(block.text))


def walk(seed: int) -> None:
    """One world with random users, pods and evidence."""
    chance = random.Random(seed)
    strategy = chance.choice(["Canary", "Canary", "BlueGreen", "Shadow", "Recreate"])
    manual = chance.choice(["Manual", "Automatic"])
    harm = chance.choice(["Rollback", "Pause", "StepDown"])
    surge = chance.choice([-1, -1, 0])
    world = World(
        raw_spec("v1", strategy=strategy, promotion=manual, analysis={"onHarm": harm}, maxSurgeGPUs=surge,
                 shadow={"percent": 10})
    )  # fmt: skip
    world.gpus = {"v1": 1, "v2": 1, "v3": 1}
    for number in range(90):
        event = chance.random()
        if event < 0.06:
            world.serve(chance.choice(["v1", "v2", "v3"]))
        elif event < 0.3:
            world.judge(chance.choice([SAFE, SAFE, SAFE, UNDECIDED, HARMFUL]))
        elif event < 0.4:
            world.act(
                chance.choice(["Promote", "PromoteFull", "Pause", "Resume", "Abort", "Retry"]), f"{seed}-{number}"
            )
        elif event < 0.42:
            for pods in world.pods.values():
                for pod in pods:
                    pod.crashes = chance.random() < 0.3
        world.now += chance.choice([1.0, 3.0, 11.0, 40.0, 130.0])
        world.reconcile()


def test_it_shows_what_happens_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[str, str]] = set()
    original = Draft.set_rollout

    def recording(self: Draft, **changes: object) -> object:
        before = self.rollout.stage if self.rollout is not None else None
        result = original(self, **changes)
        after = changes.get("stage")
        stepped = after is Stage.SHIFTING and "step" in changes
        if before is not None and isinstance(after, Stage) and (after is not before or stepped):
            seen.add((before.value, after.value))
        return result

    monkeypatch.setattr(Draft, "set_rollout", recording)
    for seed in SEEDS:
        walk(seed)
    assert seen == drawn()


def test_all_stages_are_drawn() -> None:
    assert {state for edge in drawn() for state in edge} == {stage.value for stage in Stage}


def test_the_table_has_all_stages() -> None:
    text = (ROOT / "docs/concepts.md").read_text()
    rows = re.findall(r"^\| (\w+) \|", text[text.index("| Stage |") :], re.M)
    assert set(rows) >= {stage.value for stage in Stage if stage is not Stage.FINISHED}

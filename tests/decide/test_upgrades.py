"""A new release of the operator renders pods differently; those that run stay what they are."""

from typing import Any

import pytest
from slipway.api.revisions import revision_from_definition
from slipway.engine.decide import Options, decide
from slipway.resources import Identity, RenderOptions, desired, workloads

from tests.decide.world import World, serving


def templates(world: World, image: str) -> dict[str, Any]:
    """Pod templates by Deployment, as an operator with this default image would apply them now."""
    raw = world.raw | {"status": world.status.to_wire()}
    decision = decide(raw, world.observed(), world.metrics(), Options(runtime_image=image), world.now)
    assert decision.spec is not None
    objects = desired(
        Identity("m", "n", "u"), decision.spec, decision.status, decision.revisions, RenderOptions(runtime_image=image)
    )
    return {obj["metadata"]["name"]: obj["spec"]["template"] for obj in objects if obj["kind"] == "Deployment"}


def later_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pods are made of changes."""
    from slipway.engine import definitions
    from slipway.resources import pods

    def rendered(identity: Any, revision: Any, options: Any) -> dict[str, Any]:
        template = pods.pod_template(identity, revision, options)
        return template | {"spec": template["spec"] | {"hostUsers": False}}

    monkeypatch.setattr(definitions, "pod_template", rendered)
    monkeypatch.setattr(workloads, "pod_template", rendered)


def test_running_pods_are_not_replaced_by_an_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    world = serving()
    before = templates(world, "slipway-runtime:0.1.0")
    later_release(monkeypatch)
    assert templates(world, "slipway-runtime:9.9.9") == before


def test_what_comes_after_the_upgrade_is_of_the_new_release(monkeypatch: pytest.MonkeyPatch) -> None:
    world = serving()
    old = world.revision("v1")
    later_release(monkeypatch)
    world.serve("v2")
    world.reconcile()
    after = templates(world, "slipway-runtime:9.9.9")
    assert "hostUsers" not in after[old]["spec"]
    assert after[world.revision("v2")]["spec"]["hostUsers"] is False


def test_the_name_of_a_revision_does_not_depend_on_what_it_remembers() -> None:
    world = serving()
    [definition] = [item for item in world.definitions.values() if item.version == "v1"]
    assert {"image", "template"} <= set(definition.data)
    assert revision_from_definition("m", definition.data).name == world.revision("v1")

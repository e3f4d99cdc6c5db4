"""Argo CD's actions: offered when they make sense, and written as the CLI writes them."""

from typing import Any

import pytest
import yaml
from slipway.api.status import Action, Verb

from tests.gitops.phases import recorded
from tests.gitops.readers import DEPLOY, run_lua

ACTIONS = DEPLOY / "argocd" / "actions"
VERBS = {
    "promote": Verb.PROMOTE,
    "promote-full": Verb.PROMOTE_FULL,
    "pause": Verb.PAUSE,
    "resume": Verb.RESUME,
    "abort": Verb.ABORT,
    "retry": Verb.RETRY,
}


def tabled(value: Any) -> Any:
    """As it comes back from Lua, which has one word for empty lists and empty objects; Argo CD puts that right."""
    if isinstance(value, dict):
        return {key: tabled(item) for key, item in value.items()}
    return [tabled(item) for item in value] if isinstance(value, list) and value else {} if value == [] else value


def offered(name: str) -> set[str]:
    found = run_lua(ACTIONS / "discovery.lua", recorded()[name])
    assert set(found) == set(VERBS)
    return {action for action, settings in found.items() if not settings["disabled"]}


@pytest.mark.parametrize(
    ("name", "actions"),
    [
        ("NotYetSeen", set()),
        ("Ready", set()),
        ("Progressing", {"promote", "promote-full", "pause", "abort"}),
        ("Paused", {"promote", "promote-full", "resume", "abort"}),
        ("RollingBack", set()),
        ("Stalled", {"retry"}),
    ],
)
def test_what_is_offered(name: str, actions: set[str]) -> None:
    assert offered(name) == actions


@pytest.mark.parametrize(("name", "verb"), VERBS.items())
def test_an_action_asks_the_operator_and_leaves_the_spec_alone(name: str, verb: Verb) -> None:
    before = recorded()["Paused"]
    after = run_lua(ACTIONS / f"{name}.lua", before)
    action = Action.model_validate(after["status"]["action"])
    assert (action.verb, action.by) == (verb.value, "argocd")
    assert action.id.startswith("argocd-")
    assert after["spec"] == before["spec"]
    assert after["status"] | {"action": {}} == tabled(before["status"]) | {"action": {}}


def test_the_settings_hold_the_lua_that_is_tested() -> None:
    settings = yaml.safe_load((DEPLOY / "argocd" / "argocd-cm.yaml").read_text())["data"]
    health = settings["resource.customizations.health.slipway.dev_ModelDeployment"]
    assert health == (DEPLOY / "argocd" / "health.lua").read_text()
    actions = yaml.safe_load(settings["resource.customizations.actions.slipway.dev_ModelDeployment"])
    assert {item["name"] for item in actions["definitions"]} == set(VERBS)
    for item in actions["definitions"]:
        assert item["action.lua"] == (ACTIONS / f"{item['name']}.lua").read_text()

"""In every phase, kstatus, kubectl wait, Flux and Argo CD read the status as a person would."""

import pytest
from slipway.api.status import Phase

from tests.gitops.phases import recorded
from tests.gitops.readers import argocd, condition, flux, kstatus, kubectl_wait

TABLE = {
    # phase or moment: kstatus (Helm, kpt), Flux with our expressions, kubectl wait for Ready, Argo CD
    "Pending": ("InProgress", "InProgress", False, "Progressing"),
    "Progressing": ("InProgress", "InProgress", False, "Progressing"),
    "Paused": ("InProgress", "InProgress", False, "Suspended"),
    "Promoting": ("InProgress", "InProgress", False, "Progressing"),
    "RollingBack": ("InProgress", "InProgress", False, "Progressing"),
    "Ready": ("Current", "Current", True, "Healthy"),
    "Degraded": ("InProgress", "InProgress", False, "Degraded"),
    "Stalled": ("Failed", "Failed", False, "Degraded"),
    "Suspended": ("InProgress", "InProgress", False, "Suspended"),
    "Broken": ("Failed", "Failed", False, "Degraded"),
    "Edited": ("InProgress", "InProgress", False, "Progressing"),
}


def test_the_table_holds_every_phase() -> None:
    assert {phase.value for phase in Phase} <= set(TABLE)
    for phase in Phase:
        assert recorded()[phase.value]["status"]["phase"] == phase.value


@pytest.mark.parametrize("name", TABLE)
def test_all_tools_read_it_alike(name: str) -> None:
    obj = recorded()[name]
    assert (kstatus(obj), flux(obj), kubectl_wait(obj), argocd(obj)["status"]) == TABLE[name]


@pytest.mark.parametrize("name", TABLE)
def test_argocd_shows_why(name: str) -> None:
    assert argocd(recorded()[name])["message"]


def test_an_object_that_nobody_has_looked_at_is_not_done() -> None:
    obj = recorded()["NotYetSeen"]
    assert argocd(obj)["status"] == "Progressing"
    assert flux(obj) == "InProgress"
    assert not kubectl_wait(obj)


def test_an_object_that_goes_is_terminating() -> None:
    obj = recorded()["Deleted"]
    assert kstatus(obj) == "Terminating"
    assert argocd(obj) == {"status": "Progressing", "message": "is being deleted"}


def test_what_a_person_is_needed_for_still_says_whether_it_serves() -> None:
    assert condition(recorded()["Stalled"], "Available") == "True"
    assert condition(recorded()["Degraded"], "Available") == "False"
    assert kubectl_wait(recorded()["Paused"], "Available")


@pytest.mark.parametrize("name", TABLE)
def test_reconciling_and_stalled_never_hold_together(name: str) -> None:
    obj = recorded()[name]
    truths = [kind for kind in ("Ready", "Reconciling", "Stalled") if condition(obj, kind) == "True"]
    assert len(truths) <= 1
    assert all(item["observedGeneration"] <= obj["metadata"]["generation"] for item in obj["status"]["conditions"])

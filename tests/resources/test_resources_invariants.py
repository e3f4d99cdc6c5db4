"""Properties of every rendering, whatever the status says."""

import copy
import json

from hypothesis import given
from hypothesis import strategies as st
from slipway.api.status import ModelDeploymentStatus, Role, VersionStatus, VersionWeight
from slipway.resources import APPLIED_HASH
from slipway.resources.workloads import DEFINITION

from tests.resources.rendering import canary, of_kind, only, raw_spec, render, revisions_of

VERSIONS = tuple(f"v{number}" for number in range(1, 5))
SPEC = raw_spec(versions=[{"name": name, "uri": f"file:///m/{name}"} for name in VERSIONS])
REVISIONS = revisions_of(SPEC)


@st.composite
def live_revisions(draw: st.DrawFn) -> tuple[VersionStatus, ...]:
    chosen = draw(st.lists(st.sampled_from(sorted(REVISIONS)), unique=True, max_size=4))
    return tuple(
        VersionStatus(
            name=REVISIONS[name].version.name,
            revision=name,
            role=draw(st.sampled_from(Role)),
            replicas=draw(st.integers(0, 9)),
            ready_replicas=draw(st.integers(0, 9)),
            subset=draw(st.booleans()),
            weight=VersionWeight(intended=draw(st.integers(0, 100))),
        )
        for name in chosen
    )


@given(live_revisions())
def test_routes_are_complete(entries: tuple[VersionStatus, ...]) -> None:
    objects = render(SPEC, entries)
    subsets = {subset["name"] for rule in of_kind(objects, "DestinationRule") for subset in rule["spec"]["subsets"]}
    for virtual_service in of_kind(objects, "VirtualService"):
        for route in virtual_service["spec"]["http"]:
            assert sum(share["weight"] for share in route["route"]) == 100
            assert isinstance(route["retries"]["attempts"], int)
            assert route["timeout"]
            for share in route["route"]:
                assert share["destination"]["subset"] in subsets
                assert share["destination"]["port"]["number"] in {80, 9000}
                assert share["headers"]["response"]["set"]["x-model-version"]
        default = virtual_service["spec"]["http"][-1]
        assert default["name"] == "default"
        assert "match" not in default
        assert {share["destination"]["subset"] for share in default["route"]} == subsets


@given(live_revisions())
def test_a_revision_without_weight_gets_none_unless_nobody_has(entries: tuple[VersionStatus, ...]) -> None:
    objects = render(SPEC, entries)
    routed = [entry for entry in entries if entry.subset]
    if not any(entry.weight.intended for entry in routed):
        return
    shares = {
        share["destination"]["subset"]: share["weight"]
        for share in only(objects, "VirtualService")["spec"]["http"][-1]["route"]
    }
    for entry in routed:
        if entry.weight.intended == 0:
            assert shares[entry.revision] == 0


@given(live_revisions())
def test_every_object_is_owned_labelled_and_hashed(entries: tuple[VersionStatus, ...]) -> None:
    objects = render(SPEC, entries)
    keys = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(keys) == len(set(keys))
    for item in objects:
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "slipway"
        assert labels["slipway.dev/model-deployment"] == "sentiment"
        assert set(labels) <= {
            "app.kubernetes.io/managed-by",
            "slipway.dev/model-deployment",
            "slipway.dev/version",
            "slipway.dev/revision",
        }
        (owner,) = item["metadata"]["ownerReferences"]
        assert owner["controller"] is owner["blockOwnerDeletion"] is True
        more = {DEFINITION} if item["kind"] == "Deployment" else set()
        assert set(item["metadata"]["annotations"]) == {APPLIED_HASH} | more


@given(live_revisions())
def test_rendering_is_deterministic_and_survives_a_round_trip_of_status(entries: tuple[VersionStatus, ...]) -> None:
    status = ModelDeploymentStatus(versions=entries)
    again = ModelDeploymentStatus.from_wire(json.loads(json.dumps(status.to_wire())))
    before = copy.deepcopy(SPEC)
    assert render(SPEC, entries) == render(SPEC, again.versions)
    assert before == SPEC


def test_the_hash_tells_whether_there_is_something_to_apply() -> None:
    spec = raw_spec()
    stable, candidate = canary(spec)
    before = render(spec, (stable, candidate))
    after = render(spec, (stable, candidate.model_copy(update={"replicas": 3})))
    changed = [
        (old["kind"], old["metadata"]["name"])
        for old, new in zip(before, after, strict=True)
        if old["metadata"]["annotations"] != new["metadata"]["annotations"]
    ]
    assert changed == [("Deployment", candidate.revision)]


def test_revision_numbers_are_kept_and_continued() -> None:
    first, second, third, fourth = REVISIONS
    objects = render(SPEC, (), numbers={second: 4, third: 7})
    given_numbers = {item["metadata"]["name"]: item["revision"] for item in of_kind(objects, "ControllerRevision")}
    assert given_numbers == {first: 8, second: 4, third: 7, fourth: 9}


def test_no_revision_number_is_larger_than_the_api_server_takes() -> None:
    names = [item["metadata"]["name"] for item in of_kind(render(SPEC, ()), "ControllerRevision")]
    objects = render(SPEC, (), numbers={names[0]: 2**63 - 1})
    assert {item["revision"] for item in of_kind(objects, "ControllerRevision")} == {2**63 - 1}


def test_a_live_revision_without_definition_keeps_its_route_and_is_not_rendered() -> None:
    entry = VersionStatus(
        name="v1",
        revision="sentiment-v1-00000000",
        role=Role.STABLE,
        subset=True,
        weight=VersionWeight(intended=100),
    )
    objects = {item["kind"]: item for item in render(SPEC, (entry,))}
    assert "Deployment" not in objects
    assert [subset["name"] for subset in objects["DestinationRule"]["spec"]["subsets"]] == ["sentiment-v1-00000000"]


def test_a_deployment_carries_the_definition_it_was_made_from() -> None:
    (name, revision), *_ = REVISIONS.items()
    deployment = only(render(SPEC, (VersionStatus(name="v1", revision=name),)), "Deployment")
    assert json.loads(deployment["metadata"]["annotations"][DEFINITION]) == dict(revision.data)

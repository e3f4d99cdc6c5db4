"""Whatever the API server accepts leads to children or to a condition that names the field; never to a crash.

The objects come from the CRD's own schema, with contents that mean harm (:mod:`tests.hostile.specimens`), and pass its
validation, rules in CEL included.
"""

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slipway.analysis.expressions import Subject, render
from slipway.api.observed import Observed
from slipway.api.samples import MetricsView
from slipway.api.validation import validate
from slipway.engine.decide import Options, decide
from slipway.engine.reconcile import LOOK_AGAIN
from slipway.resources.identity import VERSION_LABEL

from tests.engine.world import KEY, World
from tests.hostile.specimens import HOSTILE, Gate, model_deployment, spec_of

GATE = Gate()
NOW = 1_767_225_600.0
SEEDS = st.integers(0, 2**32)
ROUNDS = 30
"""Of six seconds each: time for a promotion and what comes after it, each with the longest ``settle``."""
FIELD = re.compile(r"^(metadata\.name|spec(\.[^:]+)?): ")
LABEL_KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
HEADER_NAME = re.compile(r"[a-z0-9-]{1,128}")
MOST_ANNOTATIONS, MOST_OBJECT = 256 * 1024, 1024 * 1024


def admitted(seed: int) -> dict[str, Any] | None:
    stored, causes = GATE.admit(model_deployment(spec_of(seed)))
    return None if causes else stored


@given(SEEDS)
@settings(max_examples=200)
def test_a_decision_is_made_of_whatever_is_accepted(seed: int) -> None:
    raw = admitted(seed)
    if raw is None:
        return
    observed = Observed(name="sentiment", namespace="nlp", uid="u-1", generation=1)
    decision = decide(raw, observed, MetricsView(at=NOW, error="none"), Options(), NOW)
    ready = next(item for item in decision.status.conditions if item.type.value == "Ready")
    if ready.reason in ("InvalidSpec", "NotYetSupported"):
        assert FIELD.match(ready.message), ready.message
        assert not decision.apply
    else:
        assert decision.apply or ready.reason == "Suspended"
    assert decision.requeue_after is None or decision.requeue_after >= LOOK_AGAIN
    _, causes = GATE.admit(model_deployment(raw["spec"], status=decision.status.to_wire()))
    assert not causes


def test_most_specimens_are_accepted_and_some_are_not() -> None:
    """The tests above would prove nothing if nothing passed the schema, or everything did."""
    accepted = [admitted(seed) for seed in range(60)]
    assert 30 < sum(raw is not None for raw in accepted) < 60


async def lead(raw: dict[str, Any]) -> World:
    """Have the engine look at an object again and again, as pods come up; the last looks write nothing."""
    world = World()
    world.api.put({**raw, "metadata": {"namespace": KEY.namespace, "name": KEY.name}})
    for _ in range(ROUNDS):
        await world.reconcile()
        world.pods_follow()
        world.now += 6.0
    before = world.api.writes
    outcome = await world.reconcile()
    assert world.api.writes == before or world.status["phase"] not in ("Stalled", "Suspended", "Ready")
    assert outcome.requeue_after is None or outcome.requeue_after >= LOOK_AGAIN
    return world


@given(SEEDS)
@settings(max_examples=40)
def test_children_are_well_formed_and_the_engine_comes_to_rest(seed: int) -> None:
    raw = admitted(seed)
    if raw is None:
        return
    world = asyncio.run(lead(raw))
    for (plural, _, _), child in world.api.objects.items():
        if plural not in ("pods", "modeldeployments"):
            well_formed(child)


def well_formed(child: dict[str, Any]) -> None:
    metadata = child["metadata"]
    assert NAME.fullmatch(metadata["name"])
    assert metadata["labels"]["slipway.dev/model-deployment"] == KEY.name
    for key, value in metadata["labels"].items():
        assert LABEL_KEY.fullmatch(key)
        assert LABEL_VALUE.fullmatch(value)
    assert sum(len(key) + len(value) for key, value in metadata.get("annotations", {}).items()) < MOST_ANNOTATIONS
    assert len(json.dumps(child)) < MOST_OBJECT
    if child["kind"] == "Deployment":
        template = child["spec"]["template"]["metadata"]["labels"]
        assert child["spec"]["selector"]["matchLabels"].items() <= template.items()
        assert template[VERSION_LABEL] == metadata["labels"][VERSION_LABEL]
    if child["kind"] == "VirtualService":
        for route in child["spec"]["http"]:
            pins = [match["headers"] for match in route.get("match", ()) if route["name"].find("pin-") >= 0]
            for name in (name for headers in pins for name in headers):
                assert HEADER_NAME.fullmatch(name)
            for target in route["route"]:
                for values in target.get("headers", {}).get("response", {}).values():
                    assert not re.search(r"[\x00-\x1f]", "".join(values.values()))


@pytest.mark.parametrize("value", HOSTILE)
def test_what_is_filled_into_a_query_stays_in_its_string(value: str) -> None:
    """Names cannot hold such texts; were they to, they would still end up inside of the quotes."""
    filled = render('up{version="{{version}}"}', Subject(version=value))
    inside = filled.removeprefix('up{version="').removesuffix('"}')
    assert re.fullmatch(r'([^"\\\n]|\\.)*', inside)
    assert inside.replace(r"\n", "\n").replace(r"\"", '"').replace("\\\\", "\\") == value


@pytest.mark.parametrize(
    "value", [text for text in HOSTILE if not re.fullmatch("[a-z0-9-]*", text) or text in ("", "-")]
)
def test_names_that_become_labels_headers_and_cookies_hold_nothing_else(value: str) -> None:
    bad: dict[str, dict[str, Any]] = {
        "version": {"versions": [{"name": value, "uri": "file:///m"}]},
        "host": {"versions": [{"name": "v", "uri": "file:///m"}], "traffic": {"hosts": [value]}},
    }
    if not re.fullmatch("[A-Za-z0-9_-]*", value):
        bad["header"] = {"versions": [{"name": "v", "uri": "file:///m"}], "traffic": {"versionHeader": value}}
        bad["cookie"] = {**bad["header"], "traffic": {"sessionAffinity": {"cookie": value}}}
        bad["tenants"] = {**bad["header"], "traffic": {}, "runtime": {"tenants": {"header": value}}}
    for what, spec in bad.items():
        _, causes = GATE.admit(model_deployment(spec))
        assert causes, what
        assert validate(model_deployment(spec)).problems, what

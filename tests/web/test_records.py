import dataclasses
import math

import pytest
from slipway.kube.kinds import MODEL_DEPLOYMENT
from slipway.web.records import Record, RecordedSample, Records, sample_of

from tests.web.scene import KEY, P99, Scene


def sample(at: float) -> RecordedSample:
    return RecordedSample(at, {}, {})


def test_a_full_record_thins_its_older_half_and_reaches_further_back():
    record = Record("u", 0.0, 8)
    for at in range(40):
        record.add(sample(float(at)))
    times = [each.at for each in record.samples]
    assert len(times) <= 8
    assert times == sorted(times)
    assert times[0] == 0.0
    assert times[-4:] == [36.0, 37.0, 38.0, 39.0]


def test_samples_in_quick_succession_are_one():
    record = Record("u", 0.0, 8)
    for at in (1.0, 1.2, 1.4, 2.0):
        record.add(sample(at))
    assert [each.at for each in record.samples] == [1.4, 2.0]


def test_a_sample_says_what_status_and_metrics_say():
    scene = Scene()
    scene.roll_out()
    scene.tick()
    (v1, v2) = (scene.world.revision(name) for name in ("v1", "v2"))
    newest = scene.record.samples[-1]
    assert newest.at == scene.world.now
    assert (newest.versions[v1].intended, newest.versions[v2].intended) == (90, 10)
    assert newest.versions[v2].observed == pytest.approx(10.0)
    assert (newest.versions[v1].p99, newest.versions[v2].p99) == (P99["v1"], P99["v2"])
    assert newest.versions[v2].errors == 0.0
    assert newest.versions[v1].qps == pytest.approx(27.0)
    (check,) = scene.world.status.analysis
    assert check.evidence is not None
    assert newest.checks["errors"].harm == pytest.approx(math.log10(check.evidence.number), abs=1e-3)


def test_evidence_of_safety_is_what_the_verdict_goes_by():
    scene = Scene()
    scene.roll_out()
    while scene.world.status.analysis[0].verdict != "Safe":
        scene.tick()
    safe = scene.record.samples[-1].checks["errors"].safe
    assert safe is not None
    assert safe >= math.log10(1 / 0.05)


def test_what_is_not_measured_is_unknown_and_not_zero():
    scene = Scene()
    scene.world.metrics_fault = "down"
    scene.tick()
    (point,) = scene.record.samples[-1].versions.values()
    assert (point.p99, point.errors, point.qps, point.observed) == (None, None, None, None)
    assert point.intended == 100


def test_shares_of_requests_that_are_known_in_part_are_unknown():
    scene = Scene()
    scene.roll_out()
    view = scene.metrics()
    silent = scene.world.revision("v2")
    part = dataclasses.replace(
        view, revisions={name: found for name, found in view.revisions.items() if name != silent}
    )
    points = sample_of(scene.world.status, part, scene.world.now).versions
    assert [point.observed for point in points.values()] == [None, None]
    assert points[scene.world.revision("v1")].qps == pytest.approx(27.0)


def test_a_decision_is_recorded_at_once():
    scene = Scene()
    raw = scene.put()
    scene.records.decided(raw, scene.world.status, scene.world.now)
    assert [each.at for each in scene.record.samples] == [scene.world.now]


def test_an_object_at_rest_is_recorded_now_and_then():
    scene = Scene()
    begun = scene.world.now
    for _ in range(10):
        scene.tick(5.0)
    assert [each.at - begun for each in scene.record.samples] == [5.0, 20.0, 35.0, 50.0]


def test_coming_to_rest_is_recorded_at_once():
    scene = Scene()
    scene.roll_out()
    while scene.world.status.phase != "Ready":
        scene.tick()
    assert scene.record.samples[-1].at == scene.world.now
    assert scene.world.status.stable == "v2"


def test_another_object_of_the_same_name_begins_anew_and_a_deleted_one_is_forgotten():
    scene = Scene()
    scene.tick()
    scene.tick()
    first = scene.record
    gone = scene.put(uid="another")
    scene.records.measured()
    assert scene.records.of(KEY) is not first
    assert len(scene.record.samples) == 1
    scene.cache.remove(MODEL_DEPLOYMENT, gone)
    scene.records.measured()
    assert scene.records.of(KEY) is None


def test_there_is_room_for_so_many_and_a_rollout_comes_before_what_rests():
    scene = Scene()
    records = Records(scene.cache, lambda namespace, name: scene.metrics(), lambda: scene.world.now, objects=2)
    for name in ("a", "b", "c"):
        scene.put(name=name, uid=name)
    records.measured()
    recorded = [name for name in ("a", "b", "c") if records.of(KEY._replace(name=name))]
    assert len(recorded) == 2
    (left_out,) = {"a", "b", "c"} - set(recorded)
    scene.world.serve("v2")
    scene.world.tick()
    scene.put(name=left_out, uid=left_out)
    records.measured()
    assert records.of(KEY._replace(name=left_out)) is not None
    assert sum(records.of(KEY._replace(name=name)) is not None for name in ("a", "b", "c")) == 2

"""Hard breakers: what trips them, what must not, and that they need no metrics."""

import pytest
from slipway.analysis import tripped
from slipway.api.observed import PodView, RevisionView
from slipway.api.samples import CounterSeries, RevisionMetrics
from slipway.api.status import Verdict

NOW = 1000.0
NOTHING = RevisionMetrics("r")


def pod(name="p-0", **fields):
    return PodView(name, **{"created_at": 100.0, "ready": True, "ready_at": 150.0, **fields})


def unready(name="p-0", **fields):
    return pod(name, **{"ready": False, "ready_at": None, **fields})


def reason(*pods, metrics=NOTHING, since=200.0, replicas=None, now=NOW):
    view = RevisionView("r", "v2", exists=True, replicas=len(pods) if replicas is None else replicas, pods=pods)
    found = tripped(view, metrics, since=since, now=now)
    assert found is None or found.verdict is Verdict.HARMFUL
    return found.reason if found is not None else None


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([pod()], None),
        ([unready(waiting_reason="CrashLoopBackOff", restarts=2)], "CrashLoop"),
        ([unready(waiting_reason="CrashLoopBackOff", restarts=1, unready_since=990.0)], None),
        ([pod(), unready("p-1", restarts=3)], "CrashLoop"),
        ([pod(restarts=3)], None),
        ([unready(waiting_reason="CrashLoopBackOff", restarts=4, terminated_reason="OOMKilled")], "OutOfMemory"),
        ([pod(restarts=1, terminated_reason="OOMKilled", ready_at=900.0)], "OutOfMemory"),
        ([pod(), unready("p-1", restarts=1, terminated_reason="OOMKilled")], "OutOfMemory"),
        ([pod(restarts=1, terminated_reason="OOMKilled", ready_at=150.0)], None),
        ([unready(waiting_reason="CrashLoopBackOff", restarts=9, terminating=True), pod("p-1")], None),
        ([unready(waiting_reason="ImagePullBackOff")], "ImageError"),
        ([unready(waiting_reason="ImagePullBackOff", created_at=975.0)], None),
        ([pod(), unready("p-1", waiting_reason="ImagePullBackOff")], None),
        ([unready(unready_since=960.0)], "ReadinessLost"),
        ([unready(unready_since=980.0)], None),
        ([unready(unready_since=500.0), unready("p-1", unready_since=985.0)], None),
        ([unready(unready_since=500.0), pod("p-1")], None),
        ([unready(created_at=980.0)], None),
    ],
)
def test_pods(pods, expected):
    assert reason(*pods) == expected


def test_readiness_that_was_never_there_is_no_loss():
    assert reason(unready(), since=None) is None
    assert reason(unready(), since=990.0) is None


def test_no_pods_at_all():
    assert reason(replicas=2) == "ReadinessLost"
    assert reason(replicas=0) is None


def requests(good, bad, *, begin=940.0, scrapes=(925.0, 940.0, 955.0, 970.0, 985.0)):
    """Counters that grow evenly from zero over the scrapes after ``begin``."""
    times = [at for at in scrapes if at > begin]
    series = []
    for code, total in (("200", good), ("500", bad)):
        samples = tuple((at, total * (n + 1) / len(times)) for n, at in enumerate(times))
        series.append(CounterSeries("p-0", code, samples))
    return RevisionMetrics("r", scrapes={"p-0": scrapes}, requests=tuple(series))


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [(30, 30, "ErrorBurst"), (0, 21, "ErrorBurst"), (0, 18, None), (33, 30, None), (60, 0, None)],
)
def test_a_burst_of_errors(good, bad, expected):
    assert reason(pod(), metrics=requests(good, bad)) == expected


def test_errors_before_the_first_weight_do_not_count():
    assert reason(pod(), metrics=requests(0, 60), since=986.0) is None
    assert reason(pod(), metrics=requests(0, 60), since=None) is None


def test_old_errors_do_not_count():
    assert reason(pod(), metrics=requests(0, 60), now=1100.0) is None


def test_messages_name_the_pod_and_the_cause():
    view = RevisionView(
        "r",
        "v2",
        pods=(unready(waiting_reason="CrashLoopBackOff", restarts=5, exit_code=65, message="digest differs"),),
    )
    found = tripped(view, NOTHING, since=None, now=NOW)
    assert found is not None
    assert "p-0" in found.message and "65" in found.message and "digest differs" in found.message

from typing import Any

from slipway.engine.pods import pod_view, replica_failure


def pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "n", "containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
        "status": status,
    }


def server(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "sidecar", "restartCount": 9}, {"name": "server", **fields}]


def test_a_ready_pod():
    view = pod_view(
        pod(
            podIP="10.0.0.1",
            conditions=[{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:30Z"}],
            containerStatuses=server(restartCount=1),
        )
    )
    assert (view.ready, view.ip, view.node, view.gpus, view.restarts) == (True, "10.0.0.1", "n", 2, 1)
    assert view.ready_at is not None
    assert view.ready_at - view.created_at == 30


def test_a_crash_loop_tells_the_last_end():
    view = pod_view(
        pod(
            conditions=[{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:30Z"}],
            containerStatuses=server(
                restartCount=3,
                state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
                lastState={"terminated": {"reason": "Error", "exitCode": 65, "message": "digest differs\n"}},
            ),
        )
    )
    assert view.failing
    assert (view.ready, view.ready_at) == (False, None)
    assert (view.terminated_reason, view.exit_code, view.message) == ("Error", 65, "digest differs")


def test_the_present_end_counts_before_the_last_one():
    view = pod_view(
        pod(
            containerStatuses=server(
                state={"terminated": {"reason": "OOMKilled", "exitCode": 137}},
                lastState={"terminated": {"reason": "Error", "exitCode": 1}},
            )
        )
    )
    assert view.out_of_memory


def fetching(**fields: Any) -> dict[str, Any]:
    """A pod whose server waits for its model to be fetched."""
    waiting = {"waiting": {"reason": "PodInitializing"}}
    init = [{"name": "istio-proxy", "restartCount": 7}, {"name": "fetch", **fields}]
    return pod(initContainerStatuses=init, containerStatuses=server(restartCount=0, state=waiting))


def test_a_model_that_cannot_be_fetched_is_the_servers_failure():
    end = {"terminated": {"reason": "Error", "exitCode": 65, "message": "DigestMismatch: expected sha256 ab"}}
    looping = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}}
    for fields in ({"restartCount": 2, "state": looping, "lastState": end}, {"restartCount": 0, "state": end}):
        view = pod_view(fetching(**fields))
        assert (view.exit_code, view.message) == (65, "DigestMismatch: expected sha256 ab")
    assert pod_view(fetching(restartCount=2, state=looping, lastState=end)).failing


def test_a_model_that_is_fetched_or_being_fetched_is_no_failure():
    done = {"terminated": {"reason": "Completed", "exitCode": 0, "message": "an earlier word"}}
    for fields in ({"restartCount": 0, "state": {"running": {}}}, {"restartCount": 3, "state": done}):
        view = pod_view(fetching(**fields))
        assert (view.failing, view.restarts, view.message) == (False, 0, "")


def test_the_digest_that_was_verified_is_the_fetchers_last_word():
    for message, exit_code, told in (
        (f"sha256:{'a' * 64}\n", 0, f"sha256:{'a' * 64}"),
        (f"sha256:{'a' * 64}", 65, ""),
        ("fetched", 0, ""),
    ):
        view = pod_view(fetching(restartCount=0, state={"terminated": {"exitCode": exit_code, "message": message}}))
        assert view.fetched_digest == told


def test_an_unschedulable_pod_tells_since_when_and_why():
    view = pod_view(
        pod(
            conditions=[
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/3 nodes: insufficient nvidia.com/gpu",
                    "lastTransitionTime": "2026-01-01T00:00:05Z",
                }
            ]
        )
    )
    assert view.unschedulable
    assert view.unschedulable_since == view.created_at + 5
    assert view.scheduled_at is None
    assert "insufficient" in view.message


def test_a_pod_tells_when_it_got_its_place():
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}
    view = pod_view(pod(conditions=[placed]))
    assert view.scheduled_at == view.created_at + 5
    assert view.unschedulable_since is None


def test_a_pod_without_any_status():
    view = pod_view({"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert (view.ready, view.terminating, view.gpus, view.message, view.created_at) == (False, True, 0, "", 0.0)


def test_a_replica_failure_is_told():
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: q"}
    assert replica_failure({"status": {"conditions": [condition]}}) == "exceeded quota: q"
    assert replica_failure({"status": {"conditions": [condition | {"status": "False"}]}}) == ""
    assert replica_failure({}) == ""


def test_gpus_of_every_make_are_counted():
    obj = pod()
    obj["spec"]["containers"][0]["resources"]["limits"] = {"amd.com/gpu": "2", "memory": "1Gi"}
    assert pod_view(obj).gpus == 2


def test_gpus_in_any_notation_are_counted_and_nonsense_is_none():
    most = 2**31 - 1
    odd = (("2e0", 2), ("-1", 0), ("9" * 400, most), ("9" * 5000, most), ("1e999999", most))
    for amount, gpus in (("2", 2), (4, 4), ("1k", 1000), ("500m", 0), ("many", 0), *odd):
        obj = pod()
        obj["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = amount
        assert pod_view(obj).gpus == gpus

"""What the node agent does with pods."""

import contextlib
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from e2e.sandbox.controllers.client import CLAIMS, CONFIG_MAPS, PODS, SECRETS
from tests.sandbox.bench import condition, echo, eventually, script_pod

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.integration]


def first_status(pod):
    return pod["status"]["containerStatuses"][0]


async def restarted(bench, name, times):
    async def enough():
        pod = await bench.get(PODS, name)
        return first_status(pod)["restartCount"] >= times and first_status(pod)["state"].get("running") and pod

    return await eventually(enough)


async def call(address, path):
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}:8080{path}") as response:
        return await response.json()


async def test_a_pod_runs_to_its_end(bench):
    await bench.create(PODS, script_pod("good", "echo hello; echo done >$SLIPWAY_TERMINATION_LOG"))
    pod = await bench.phase("good", "Succeeded")
    ended = first_status(pod)["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "done\n")
    assert condition(pod, "Ready")["reason"] == "PodCompleted"
    assert await bench.logs("good") == "hello\n"
    await bench.create(PODS, script_pod("bad", "exit 3"))
    pod = await bench.phase("bad", "Failed")
    assert first_status(pod)["state"]["terminated"]["exitCode"] == 3


async def test_status_is_written_as_a_kubelet_writes_it(bench):
    await bench.deploy(echo("web"))
    (pod,) = await bench.ready_pods("web", 1)
    status = pod["status"]
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    assert status["hostIP"]
    assert status["startTime"]
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    assert {condition(pod, kind)["status"] for kind in kinds} == {"True"}
    assert first_status(pod)["started"] is True
    assert first_status(pod)["ready"] is True


async def test_a_killed_process_is_restarted(bench):
    await bench.deploy(echo("web"))
    (pod,) = await bench.ready_pods("web", 1)
    pid = await process_of(bench, pod)
    os.kill(pid, signal.SIGKILL)
    pod = await restarted(bench, pod["metadata"]["name"], 1)
    ended = first_status(pod)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "Error")
    await bench.ready_pods("web", 1)
    assert "serving" in await bench.logs(pod["metadata"]["name"], previous="true")


async def process_of(bench, pod):
    node = await bench.client.request("GET", f"/api/v1/nodes/{pod['spec']['nodeName']}")
    address = next(entry["address"] for entry in node["status"]["addresses"] if entry["type"] == "InternalIP")
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}:{port}/sandbox/pods") as response,
    ):
        entries = await response.json()
    entry = next(entry for entry in entries if entry["uid"] == pod["metadata"]["uid"])
    return entry["containers"][0]["pid"]


async def test_a_crash_loop_backs_off_and_shows_the_message(bench):
    await bench.create(PODS, script_pod("loop", "echo why >$SLIPWAY_TERMINATION_LOG; exit 65", restartPolicy="Always"))
    pod = await bench.waiting_reason("loop", "CrashLoopBackOff")
    status = first_status(pod)
    assert status["lastState"]["terminated"]["exitCode"] == 65
    assert status["lastState"]["terminated"]["message"] == "why\n"
    assert "back-off 1s restarting failed container=main" in status["state"]["waiting"]["message"]
    assert pod["status"]["phase"] == "Running"


async def test_the_message_falls_back_to_the_log(bench):
    container = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await bench.create(PODS, script_pod("fallback", "echo from the log; exit 1", container=container))
    pod = await bench.phase("fallback", "Failed")
    assert first_status(pod)["state"]["terminated"]["message"] == "from the log\n"


async def test_too_much_memory_kills(bench):
    limits = {"limits": {"memory": "100Mi"}}
    await bench.deploy(echo("web", resources=limits))
    (pod,) = await bench.ready_pods("web", 1)
    with contextlib.suppress(aiohttp.ClientError):
        await call(pod["status"]["podIP"], "/allocate?mib=150")
    pod = await restarted(bench, pod["metadata"]["name"], 1)
    ended = first_status(pod)["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


async def test_an_unknown_image_cannot_be_pulled(bench):
    await bench.create(PODS, script_pod("odd", "true", container={"image": "no-such-image:1"}))
    pod = await bench.waiting_reason("odd", "ImagePullBackOff")
    assert "no-such-image:1" in first_status(pod)["state"]["waiting"]["message"]
    assert pod["status"]["phase"] == "Pending"


async def test_a_program_that_is_not_there_cannot_start(bench):
    await bench.create(PODS, script_pod("odd", "true", container={"command": ["/no/such/program"]}))
    pod = await bench.phase("odd", "Failed")
    assert first_status(pod)["state"]["terminated"]["reason"] == "StartError"


async def test_a_missing_key_holds_the_container_until_it_is_there(bench):
    source = {"valueFrom": {"secretKeyRef": {"name": "late", "key": "word"}}}
    container = {"env": [{"name": "WORD", **source}]}
    await bench.create(PODS, script_pod("late", "echo $WORD", container=container))
    pod = await bench.waiting_reason("late", "CreateContainerConfigError")
    assert 'secret "late" not found' in first_status(pod)["state"]["waiting"]["message"]
    await bench.create(SECRETS, {"metadata": {"name": "late"}, "stringData": {"word": "now"}})
    await bench.phase("late", "Succeeded")
    assert await bench.logs("late") == "now\n"


async def test_environment_and_volumes(bench):
    await bench.create(CONFIG_MAPS, {"metadata": {"name": "conf"}, "data": {"a.txt": "from a file", "B": "2"}})
    await bench.create(SECRETS, {"metadata": {"name": "key"}, "data": {"k": "c2VjcmV0"}})
    claim = {
        "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await bench.create(CLAIMS, claim)
    container = {
        "env": [
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "GREETING", "value": "hello $(NAME)"},
            {"name": "DISK", "value": "/disk"},
        ],
        "envFrom": [{"configMapRef": {"name": "conf"}, "prefix": "CONF_"}],
        "command": ["/bin/sh", "-c"],
        "args": ["cat /conf/a.txt; echo; cat /key/k; echo; echo $GREETING $CONF_B; echo kept >$DISK/f; touch /tmp2/x"],
        "volumeMounts": [
            {"name": "conf", "mountPath": "/conf"},
            {"name": "key", "mountPath": "/key"},
            {"name": "disk", "mountPath": "/disk"},
            {"name": "scratch", "mountPath": "/tmp2"},
        ],
    }
    volumes = [
        {"name": "conf", "configMap": {"name": "conf"}},
        {"name": "key", "secret": {"secretName": "key"}},
        {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    await bench.create(PODS, script_pod("vol", "", container=container, volumes=volumes))
    await bench.phase("vol", "Succeeded")
    assert await bench.logs("vol") == "from a file\nsecret\nhello vol 2\n"
    reader = {
        "command": ["/bin/sh", "-c", "cat /data/f"],
        "volumeMounts": [{"name": "disk", "mountPath": "/data"}],
    }
    await bench.create(PODS, script_pod("reader", "", container=reader, volumes=[volumes[2]]))
    await bench.phase("reader", "Succeeded")
    assert await bench.logs("reader") == "kept\n"


async def test_a_missing_volume_holds_the_pod(bench):
    volumes = [{"name": "conf", "configMap": {"name": "later"}}]
    container = {"volumeMounts": [{"name": "conf", "mountPath": "/conf"}]}
    await bench.create(PODS, script_pod("held", "cat /conf/x", container=container, volumes=volumes))

    async def warned():
        events = (await bench.client.request("GET", f"/api/v1/namespaces/{bench.namespace}/events"))["items"]
        return [event for event in events if event["reason"] == "FailedMount"]

    assert 'configmap "later" not found' in (await eventually(warned))[0]["message"]
    await bench.create(CONFIG_MAPS, {"metadata": {"name": "later"}, "data": {"x": "here"}})
    await bench.phase("held", "Succeeded")


async def test_a_mounted_config_map_is_followed_while_the_pod_runs(bench):
    volumes = [{"name": "conf", "configMap": {"name": "fresh", "optional": True}}]
    container = {
        "command": ["/bin/sh", "-c", "until test -e /conf/go; do sleep 0.05; done; cat /conf/go"],
        "volumeMounts": [{"name": "conf", "mountPath": "/conf"}],
    }
    await bench.create(PODS, script_pod("follower", "", container=container, volumes=volumes))
    await bench.phase("follower", "Running")
    await bench.create(CONFIG_MAPS, {"metadata": {"name": "fresh"}, "data": {"go": "now"}})
    await bench.phase("follower", "Succeeded")
    assert await bench.logs("follower") == "now"


async def test_init_containers_run_in_order_and_sidecars_stay(bench):
    init = [
        {"name": "one", "image": "busybox", "command": ["/bin/sh", "-c", "echo 1 >>/shared/order"]},
        {
            "name": "side",
            "image": "busybox",
            "restartPolicy": "Always",
            "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"],
        },
        {"name": "two", "image": "busybox", "command": ["/bin/sh", "-c", "echo 2 >>/shared/order"]},
    ]
    mount = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    pod = script_pod(
        "init",
        "cat /shared/order",
        container=mount,
        initContainers=[{**entry, **mount} for entry in init],
        volumes=[{"name": "shared", "emptyDir": {}}],
    )
    await bench.create(PODS, pod)
    found = await bench.phase("init", "Succeeded")
    assert await bench.logs("init", container="main") == "1\n2\n"
    states = {entry["name"]: entry["state"] for entry in found["status"]["initContainerStatuses"]}
    assert all("terminated" in state for state in states.values())


async def test_a_failing_init_container_fails_the_pod(bench):
    init = [{"name": "one", "image": "busybox", "command": ["/bin/sh", "-c", "exit 1"]}]
    await bench.create(PODS, script_pod("init", "echo never", initContainers=init))
    pod = await bench.phase("init", "Failed")
    assert condition(pod, "Initialized")["status"] == "False"


async def test_a_dead_server_is_restarted_by_its_liveness_probe(bench):
    probe = {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 1, "failureThreshold": 3}
    await bench.deploy(echo("web", livenessProbe=probe, args=["--drain", "0"]))
    (pod,) = await bench.ready_pods("web", 1)
    await call(pod["status"]["podIP"], "/unready")
    pod = await restarted(bench, pod["metadata"]["name"], 1)
    await bench.ready_pods("web", 1)


async def test_a_startup_probe_holds_the_others_back_and_gives_up(bench):
    startup = {"exec": {"command": ["/bin/sh", "-c", "exit 1"]}, "periodSeconds": 1, "failureThreshold": 2}
    await bench.deploy(echo("web", startupProbe=startup, args=["--drain", "0"]))

    async def first():
        (pod,) = await bench.pods("web")
        return pod["status"]["containerStatuses"] and pod["metadata"]["name"]

    pod = await restarted(bench, await eventually(first), 1)
    assert first_status(pod)["started"] is False
    assert condition(pod, "Ready")["status"] == "False"


async def test_a_pre_stop_hook_comes_before_the_signal_and_grace_ends(bench):
    hook = {"preStop": {"exec": {"command": ["/bin/sh", "-c", "echo hook >>/shared/order"]}}}
    container = {"lifecycle": hook, "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    folder = bench.sandbox.kubeconfig.parent / "shared" / bench.namespace
    folder.mkdir(parents=True)
    script = "trap 'echo term >>/shared/order' TERM; echo up >>/shared/order; while :; do sleep 0.05; done"
    pod = script_pod(
        "stubborn",
        script,
        container=container,
        terminationGracePeriodSeconds=2,
        volumes=[{"name": "shared", "hostPath": {"path": str(folder)}}],
    )
    await bench.create(PODS, pod)
    order = folder / "order"

    async def up():
        return order.exists()

    await eventually(up)
    await bench.client.delete(PODS, await bench.get(PODS, "stubborn"))

    async def gone():
        return await bench.client.find(PODS, bench.namespace, "stubborn") is None

    await eventually(gone)
    assert order.read_text().split() == ["up", "hook", "term"]


def runs(pid):
    return Path(f"/proc/{pid}").exists()


async def test_a_forced_deletion_frees_the_name_at_once(bench):
    script = "trap '' TERM; echo $$; while :; do sleep 0.05; done"
    await bench.create(PODS, script_pod("stubborn", script))
    await bench.phase("stubborn", "Running")

    async def said():
        return (await bench.logs("stubborn")).strip()

    pid = int(await eventually(said))
    await bench.client.delete(PODS, await bench.get(PODS, "stubborn"), grace=0)
    assert await bench.client.find(PODS, bench.namespace, "stubborn") is None

    async def ended():
        return not runs(pid)

    await eventually(ended)


async def test_a_cold_start_can_be_made_long(bench):
    await bench.sandbox.set_node_settings(start_delay=1.5)
    try:
        await bench.create(PODS, script_pod("cold", "true"))
        await bench.waiting_reason("cold", "ContainerCreating")
        await bench.phase("cold", "Succeeded")
    finally:
        await bench.sandbox.set_node_settings(start_delay=0.0)

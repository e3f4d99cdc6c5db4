"""What survives when parts of the sandbox die, and that nothing is left over."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from e2e.sandbox.cluster import Sandbox
from e2e.sandbox.controllers.client import DEPLOYMENTS, PODS
from e2e.sandbox.controllers.pods import is_ready
from tests.sandbox.bench import Bench, echo, eventually, script_pod

ROOT = Path(__file__).resolve().parents[2]


def processes_with(text):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if text.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


async def test_the_agent_takes_everything_along_and_a_new_one_goes_on(tmp_path):
    async with Sandbox(tmp_path / "data", mesh=False, restart_backoff=1.0) as sandbox, sandbox.client() as client:
        bench = Bench(client, "default", sandbox)
        await bench.deploy(echo("web", replicas=2))
        mark = f"marker-{os.getpid()}"
        script = f"(setsid sleep 300 {mark} 2>/dev/null; setsid sh -c 'sleep 300; : {mark}') & wait"
        await bench.create(PODS, script_pod("daemon", script, restartPolicy="Always"))
        await bench.rolled_out("web")
        await bench.phase("daemon", "Running")

        async def daemon_runs():
            return processes_with(f": {mark}")

        await eventually(daemon_runs)
        agent = sandbox.child("node")
        os.kill(agent.process.pid, signal.SIGKILL)
        await agent.process.wait()

        async def nothing_runs():
            return not processes_with(mark) and not processes_with("e2e.sandbox.node.echo")

        await eventually(nothing_runs)
        await sandbox.restart("node")

        async def runs_again():
            pods = await bench.pods("web")
            counts = [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods]
            return len(pods) == 2 and all(is_ready(pod) for pod in pods) and counts == [1, 1]

        await eventually(runs_again)

    await eventually(nothing_runs)


async def test_controllers_that_were_away_catch_up(tmp_path):
    async with Sandbox(tmp_path / "data", mesh=False) as sandbox, sandbox.client() as client:
        bench = Bench(client, "default", sandbox)
        await bench.deploy(echo("web", replicas=1))
        await bench.rolled_out("web")
        controllers = sandbox.child("controllers")
        os.kill(controllers.process.pid, signal.SIGKILL)
        await controllers.process.wait()
        await bench.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}})
        await bench.deploy(echo("gone"))
        await client.delete(DEPLOYMENTS, await bench.get(DEPLOYMENTS, "gone"))
        await sandbox.restart("controllers")
        await bench.rolled_out("web")
        await bench.ready_pods("gone", 0)
        assert len(await bench.pods("web")) == 3


async def test_everybody_goes_on_after_the_api_server_was_away(tmp_path):
    async with Sandbox(tmp_path / "data") as sandbox, sandbox.client() as client:
        bench = Bench(client, "default", sandbox)
        await bench.deploy(echo("web", replicas=2))
        await bench.expose("web")
        await bench.rolled_out("web")
        before = {pod["metadata"]["uid"] for pod in await bench.pods("web")}
        await sandbox.restart("apiserver")
        assert {pod["metadata"]["uid"] for pod in await bench.pods("web")} == before
        await bench.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}})
        await bench.rolled_out("web")
        pods = await bench.ready_pods("web", 3)
        assert before < {pod["metadata"]["uid"] for pod in pods}
        assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods} == {0}


def test_nothing_outlives_a_cluster_that_is_killed(tmp_path):
    folder = tmp_path / "cluster"
    argv = [sys.executable, "-m", "e2e.sandbox", "up", "--data-dir", str(folder)]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        while "kubeconfig" not in process.stdout.readline():
            assert process.poll() is None
        running = processes_with(str(folder))
        assert len(running) >= 6, "API server, controllers, node agent, data plane, Envoy and Prometheus"
    finally:
        process.kill()
        process.communicate()
    deadline = time.monotonic() + 60
    while processes_with(str(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes_with(str(folder))
    assert sandbox_command(folder, "status").returncode == 1


INSTALL = (  # as docs/sandbox.md says; the chart's operator gets ready with no more than that
    "helm install slipway charts/slipway -n slipway-system --create-namespace --take-ownership --wait "
    "--set prometheusUrl=$SLIPWAY_PROMETHEUS_URL"
)


def sandbox_command(folder, *words):
    argv = [sys.executable, "-m", "e2e.sandbox", *words, "--data-dir", str(folder)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=400)


def test_the_command_line_starts_and_ends_a_cluster(tmp_path):
    folder = tmp_path / "cluster"
    assert sandbox_command(folder, "status").returncode == 1
    started = sandbox_command(folder, "up", "--detach", "--gpus", "2")
    try:
        assert started.returncode == 0, started.stderr
        assert str(folder / "kubeconfig") in started.stdout
        shell = sandbox_command(folder, "env").stdout + "kubectl get nodes -o name; slipway status; " + INSTALL
        output = subprocess.run(["/bin/bash", "-c", shell], cwd=ROOT, capture_output=True, text=True, timeout=400)
        assert output.returncode == 0, output.stderr
        assert "node/sandbox-node-0" in output.stdout
        assert "no ModelDeployments" in output.stdout + output.stderr
        assert "STATUS: deployed" in output.stdout
        assert sandbox_command(folder, "up").returncode == 1
    finally:
        ended = sandbox_command(folder, "down")
    assert ended.returncode == 0, ended.stderr
    assert not processes_with(str(folder))
    assert sandbox_command(folder, "down").returncode == 1

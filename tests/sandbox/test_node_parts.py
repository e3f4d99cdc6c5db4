"""Parts of the node agent that need no cluster."""

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from e2e.sandbox.controllers.client import Access, ApiClient
from e2e.sandbox.controllers.quantities import parse_quantity, pod_requests, quality_of_service
from e2e.sandbox.controllers.selectors import matches
from e2e.sandbox.node.addresses import AddressPool, LoopbackRange
from e2e.sandbox.node.certificate import self_signed
from e2e.sandbox.node.environment import command_line, expand, field_value, resource_value
from e2e.sandbox.node.gpus import GpuTable
from e2e.sandbox.node.identity import account_token
from e2e.sandbox.node.images import Image, ImageTable, split_reference
from e2e.sandbox.node.logs import LogFile, LogQuery, last_text, read_log
from e2e.sandbox.node.process import LocalProcess, run_to_end
from e2e.sandbox.node.reaper import kill_marked
from e2e.sandbox.node.volumes import Mounts
from e2e.sandbox.tokens import User, write_tokens

POD = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "x", "a/b": "y"}},
    "spec": {"containers": [{"name": "c"}], "nodeName": "node"},
}


def test_quantities():
    assert parse_quantity("500m") * 2 == 1
    assert parse_quantity("2Gi") == 2**31
    assert parse_quantity("1e3") == 1000
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity("2 apples")


def test_a_pod_asks_for_all_its_containers_or_its_largest_init_container():
    def container(cpu, **more):
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    spec = {"containers": [container("1"), container("500m")], "initContainers": [container("2")]}
    assert pod_requests({"spec": spec})["cpu"] == 2
    spec["initContainers"].append(container("1", restartPolicy="Always"))
    assert pod_requests({"spec": spec})["cpu"] == parse_quantity("2500m")


def test_quality_of_service():
    def pod(resources):
        return {"spec": {"containers": [{"name": "c", "resources": resources}]}}

    assert quality_of_service(pod({})) == "BestEffort"
    assert quality_of_service(pod({"requests": {"cpu": "1"}})) == "Burstable"
    assert quality_of_service(pod({"limits": {"cpu": "1", "memory": "1Gi"}})) == "Guaranteed"


def test_selectors():
    expression = {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["x"]}]}
    assert matches(expression, {"a": "y"})
    assert matches(expression, {})
    assert not matches(expression, {"a": "x"})
    assert not matches(None, {})
    assert matches({}, {})


def test_expansion_and_its_escape():
    assert expand("$(A)-$(B)-$$(A)", {"A": "1"}) == "1-$(B)-$(A)"


def test_command_replaces_the_entry_point_and_args_the_arguments():
    image = Image(("prog",), args=("--default",))
    assert command_line({}, image, {}) == ["prog", "--default"]
    assert command_line({"args": ["$(X)"]}, image, {"X": "1"}) == ["prog", "1"]
    assert command_line({"command": ["other"]}, image, {}) == ["other"]


def test_paths_of_the_pod_are_rewritten_and_those_of_the_image_are_not() -> None:
    image = Image(("/tmp/bin/prog",), args=("/tmp/default",))

    def rewrite(word: str) -> str:
        return word.replace("/tmp", "/pods/1/tmp")

    assert command_line({"args": ["/tmp/x"]}, image, {}, rewrite) == ["/tmp/bin/prog", "/pods/1/tmp/x"]
    assert command_line({}, image, {}, rewrite) == ["/tmp/bin/prog", "/tmp/default"]


def test_downward_fields():
    assert field_value(POD, "metadata.labels['a/b']", "1.2.3.4", "h") == "y"
    assert field_value(POD, "status.podIP", "1.2.3.4", "h") == "1.2.3.4"
    limits = {"resources": {"limits": {"memory": "1Gi", "cpu": "1500m"}}}
    assert resource_value(limits, {"resource": "limits.memory", "divisor": "1Mi"}) == "1024"
    assert resource_value(limits, {"resource": "limits.cpu"}) == "2"


def test_mount_paths_are_rewritten_only_where_they_stand_as_paths():
    mounts = Mounts((("/models", Path("/real/m")), ("/models/extra", Path("/real/e"))))
    assert mounts.rewrite("/models") == "/real/m"
    assert mounts.rewrite("/models/a.pt") == "/real/m/a.pt"
    assert mounts.rewrite("/models/extra/b") == "/real/e/b"
    assert mounts.rewrite("--uri=file:///models/a") == "--uri=file:///real/m/a"
    assert mounts.rewrite("cat </models/a >>/models/b") == "cat </real/m/a >>/real/m/b"
    assert mounts.rewrite("/srv/models/a") == "/srv/models/a"
    assert mounts.rewrite("/models2/a") == "/models2/a"


def test_image_references():
    assert split_reference("slipway-runtime:0.1.0") == ("slipway-runtime", "0.1.0")
    assert split_reference("localhost:5000/x") == ("localhost:5000/x", "latest")
    assert split_reference("x@sha256:abc") == ("x", "sha256:abc")


def test_images_from_a_file(tmp_path):
    path = tmp_path / "images.yaml"
    path.write_text("mine:\n  entrypoint: [prog, run]\n  env: {A: 1}\n  tags: ['1']\n")
    table = ImageTable.from_file(path)
    assert table.find("mine:1") == Image(("prog", "run"), env={"A": "1"}, tags=frozenset({"1"}))
    assert table.find("mine:2") is None
    assert table.find("slipway-runtime:9") is not None
    path.write_text("mine: {command: [x]}\n")
    with pytest.raises(ValueError, match="entrypoint"):
        ImageTable.from_file(path)


def test_addresses_come_back_last():
    pool = AddressPool("127.99.0.0/16")
    first = pool.take()
    assert first == "127.99.1.1"
    pool.give_back(first)
    assert pool.take() == "127.99.1.2"
    assert pool.node_address(0) == "127.99.0.1"


def test_two_sandboxes_never_share_a_range():
    one, two = LoopbackRange(), LoopbackRange()
    assert one.cidr != two.cidr
    one.release()
    two.release()


def test_simulated_gpus_are_given_whole_and_taken_back():
    def pod(uid, count):
        limits = {"limits": {"nvidia.com/gpu": str(count)}}
        return {"metadata": {"uid": uid}, "spec": {"containers": [{"name": "c", "resources": limits}]}}

    table = GpuTable("node", 3)
    assert table.take(pod("a", 2)) == {"c": (0, 1)}
    with pytest.raises(RuntimeError):
        table.take(pod("b", 2))
    table.give_back(pod("a", 2))
    assert table.take(pod("b", 3)) == {"c": (0, 1, 2)}
    assert "simulated" in table.identity(0)


async def test_logs_are_read_as_kubectl_asks(tmp_path):
    log = LogFile(tmp_path / "0.log")
    for number in range(5):
        log.write(f"line {number}\n".encode())
    log.write(b"no end")
    log.close()

    async def lines(query):
        return [line async for line in read_log(log.path, query, lambda: False)]

    assert await lines(LogQuery(tail_lines=2)) == [b"line 4\n", b"no end"]
    assert b"".join(await lines(LogQuery(limit_bytes=9))) == b"line 0\nli"
    stamped = await lines(LogQuery(timestamps=True, follow=True))
    assert len(stamped) == 6
    assert stamped[0].endswith(b"Z line 0\n")
    assert last_text(log.path, 2, 100) == "line 4\nno end"


async def test_a_process_that_is_killed_ends_with_its_children(tmp_path):
    output: list[bytes] = []
    script = "import subprocess,sys; p=subprocess.Popen(['sleep','60']); print(p.pid, flush=True); p.wait()"
    process = await LocalProcess.start([sys.executable, "-c", script], {"PATH": os.defpath}, tmp_path, output.append)
    while not output:
        assert process.memory_bytes() >= 0
        await asyncio.sleep(0.01)
    process.signal(signal.SIGKILL)
    assert await process.wait() == 137
    child = int(output[0])
    _await_end(child)


def _await_end(pid):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
    raise AssertionError(f"process {pid} is still there")


async def test_a_command_that_takes_too_long_is_killed(tmp_path):
    code, _ = await run_to_end(["sleep", "60"], {"PATH": os.environ["PATH"]}, tmp_path, 0.1)
    assert code == 124
    code, output = await run_to_end(["echo", "hello"], {"PATH": os.environ["PATH"]}, tmp_path, 60)
    assert (code, output) == (0, "hello")


def test_the_reaper_kills_what_carries_the_marker_and_nothing_else():
    mark = uuid.uuid4().hex  # other runs on this machine have marks of their own
    marked = subprocess.Popen(["sleep", "60"], env={"MARK": mark, "PATH": os.environ["PATH"]}, start_new_session=True)
    other = subprocess.Popen(["sleep", "60"], env={"MARK": f"not {mark}", "PATH": os.environ["PATH"]})
    try:
        assert kill_marked(f"MARK={mark}") == 1
        assert marked.wait(60) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_reaper_acts_when_its_parent_is_gone():
    mark = uuid.uuid4().hex
    environment = {"MARK": mark, "PATH": os.environ["PATH"]}
    marked = subprocess.Popen(["sleep", "60"], env=environment, start_new_session=True)
    reaper = subprocess.Popen(
        [sys.executable, "-m", "e2e.sandbox.node.reaper", f"MARK={mark}"], stdin=subprocess.PIPE, start_new_session=True
    )
    reaper.communicate(timeout=120)
    assert reaper.returncode == 0
    assert marked.wait(60) == -signal.SIGKILL


async def test_logs_can_be_served_by_https(tmp_path):
    certificate, key = self_signed("node", tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    assert key.stat().st_mode & 0o077 == 0


async def test_static_tokens_name_the_service_account(tmp_path):
    users = (User("admin"), User.service_account("models", "robot"))
    write_tokens(tmp_path / "tokens.csv", users, with_uid=True)
    pod = {"metadata": {"namespace": "models"}, "spec": {"serviceAccountName": "robot"}}
    client = ApiClient(Access("https://api.invalid"), "tests")
    assert await account_token(client, pod, tmp_path / "tokens.csv") == users[1].token


def test_a_file_uri_of_this_machine_is_left_alone_unless_the_volume_has_the_file(tmp_path):
    volume, machine = tmp_path / "volume", tmp_path / "machine"
    for folder in (volume, machine):
        folder.mkdir()
    model = machine / "model.pt"
    model.write_bytes(b"model")
    mounts = Mounts(((str(machine), volume),))
    assert mounts.rewrite(f"file://{model}") == f"file://{model}"
    assert mounts.rewrite(f"file://{machine}/other.pt") == f"file://{volume}/other.pt"
    assert mounts.rewrite(str(model)) == f"{volume}/model.pt"
    (volume / "model.pt").write_bytes(b"the pod's own")
    assert mounts.rewrite(f"file://{model}") == f"file://{volume}/model.pt"

"""Pods of every engine: what they run, where they listen, how they get their model, and how they end."""

from fnmatch import fnmatchcase
from typing import Any

import pytest
from slipway.resources import RenderOptions, pod_template
from slipway.resources.policies import OPEN_PATHS

from tests import published
from tests.resources.rendering import IDENTITY, OPTIONS, canary, of_kind, raw_spec, render, revisions_of, template_of
from tests.resources.test_resources_schemas import ISTIO, assert_istio_knows_every_field

SIGNED = {"publicKey": {"configMap": "keys", "key": "prod.pub"}, "value": "c2ln"}


def spec_of(engine: str, **runtime: Any) -> dict[str, Any]:
    spec = raw_spec(runtime={"engine": engine, **({"image": "server:1"} if engine == "custom" else {}), **runtime})
    spec["versions"][1] |= {"uri": "s3://models/v2", "signature": SIGNED, "storageSecret": "s3"}
    return spec


def template(engine: str, version: str = "v1", **runtime: Any) -> dict[str, Any]:
    spec = spec_of(engine, **runtime)
    return template_of(render(spec, canary(spec)), version)


def server(template: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any]
    [found] = [item for item in template["spec"]["containers"] if item["name"] == "server"]
    return found


def fetch(template: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any]
    [found] = template["spec"]["initContainers"]
    return found


FOREIGN = ("triton", "vllm", "custom")


@pytest.mark.parametrize("engine", ["slipway", *FOREIGN])
def test_all_objects_are_valid(engine: str) -> None:
    spec = spec_of(engine, terminationGracePeriod="20s", env=[{"name": "A", "value": "1"}])
    for item in render(spec, canary(spec)):
        if item["apiVersion"] in ISTIO:
            assert_istio_knows_every_field(item)
        else:
            published.validate(item, "1.36")


@pytest.mark.parametrize(
    ("engine", "ports", "metrics", "ready", "live"),
    [
        ("triton", {"http": 8000, "grpc": 8001, "metrics": 8002}, "8002", "/v2/health/ready", "/v2/health/live"),
        ("vllm", {"http": 8000}, "8000", "/health", "/health"),
        ("custom", {"http": 8080, "grpc": 9000}, "8080", "/v2/health/ready", "/v2/health/live"),
    ],
)
def test_ports_probes_and_metrics(engine: str, ports: dict[str, int], metrics: str, ready: str, live: str) -> None:
    pod = template(engine)
    container = server(pod)
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == ports
    annotations = pod["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == metrics
    assert annotations.get("slipway.dev/metrics-port") == (metrics if "metrics" in ports else None)
    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    assert [container[name]["httpGet"] for name in probes] == [
        {"path": path, "port": "http"} for path in (ready, ready, live)
    ]


@pytest.mark.parametrize("engine", ["slipway", *FOREIGN])
def test_probes_need_no_token(engine: str) -> None:
    """Where nothing rewrites them, they meet the policy like any request."""
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        path = server(template(engine))[name]["httpGet"]["path"]
        assert any(fnmatchcase(path, pattern) for pattern in OPEN_PATHS), path


@pytest.mark.parametrize("engine", ["slipway", *FOREIGN])
def test_the_service_leads_to_ports_by_name(engine: str) -> None:
    spec = spec_of(engine)
    [service] = of_kind(render(spec, canary(spec)), "Service")
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(80, "http"), (9000, "grpc")]


def test_pods_say_what_scraping_has_to_know() -> None:
    """Other servers' series have no labels of ours; those of pods are joined, and nothing new is on our own pods."""
    for engine in FOREIGN:
        assert template(engine)["metadata"]["labels"]["slipway.dev/engine"] == engine
    assert "slipway.dev/engine" not in template("slipway")["metadata"]["labels"]


def test_tritons_command_line() -> None:
    container = server(template("triton", terminationGracePeriod="20s", args=["--log-verbose=1"]))
    assert container["image"].startswith("tritonserver:")
    assert "command" not in container
    assert container["args"] == [
        "tritonserver",
        "--model-repository=/mnt/models",
        "--model-control-mode=none",
        "--strict-readiness=true",
        "--http-port=8000",
        "--grpc-port=8001",
        "--metrics-port=8002",
        "--metrics-config=histogram_latencies=true",
        "--exit-timeout-secs=20",
        "--log-verbose=1",
    ]


def test_vllm_leaves_idle_connections_to_the_proxy() -> None:
    variables = {entry["name"]: entry.get("value") for entry in server(template("vllm"))["env"]}
    envoys_hour = 3600
    assert int(variables["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > envoys_hour


def test_vllms_command_line() -> None:
    container = server(template("vllm", precision="bf16", args=["--max-model-len", "4096"]))
    assert container["image"].startswith("vllm/vllm-openai:")
    assert container["command"] == ["vllm", "serve"]
    assert container["args"] == [
        *("/mnt/models/model", "--served-model-name", "sentiment", "--host", "0.0.0.0", "--port", "8000"),
        *("--dtype", "bfloat16", "--max-model-len", "4096"),
    ]
    assert "--dtype" not in server(template("vllm"))["args"]


def test_a_custom_server_is_the_users() -> None:
    own = {"name": "server", "ports": [{"name": "http", "containerPort": 5000}, {"name": "admin", "containerPort": 1}]}
    overlay = {
        "metadata": {"annotations": {"prometheus.io/port": "1"}},
        "spec": {"containers": [own | {"readinessProbe": {"httpGet": {"path": "/ping"}}}]},
    }
    pod = template("custom", args=["serve", "$(SLIPWAY_MODEL_PATH)"], podTemplate=overlay)
    container = server(pod)
    assert (container["image"], container["args"]) == ("server:1", ["serve", "$(SLIPWAY_MODEL_PATH)"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 5000, "grpc": 9000, "admin": 1}
    assert container["readinessProbe"]["httpGet"] == {"path": "/ping", "port": "http"}
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == "1"
    told = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert (told["SLIPWAY_MODEL_NAME"], told["SLIPWAY_MODEL_PATH"]) == ("sentiment", "/mnt/models/model")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"http": 9000}, {"http": 9000}),
        ({"http": 9000, "grpc": 8080}, {"http": 9000, "grpc": 8080}),
        ({"metrics": 9000}, {"http": 8080, "metrics": 9000}),
        ({"grpc": 9001}, {"http": 8080, "grpc": 9001}),
    ],
)
def test_no_port_has_two_names(given: dict[str, int], expected: dict[str, int]) -> None:
    own = {"name": "server", "ports": [{"name": name, "containerPort": port} for name, port in given.items()]}
    ports = server(template("custom", podTemplate={"spec": {"containers": [own]}}))["ports"]
    assert {port["name"]: port["containerPort"] for port in ports} == expected
    assert len(ports) == len(expected)


def test_a_custom_server_with_its_model_in_the_image_is_brought_nothing() -> None:
    spec = raw_spec(
        versions=[{"name": "v1"}, {"name": "v2", "runtime": {"image": "server:2"}}],
        runtime={"engine": "custom", "image": "server:1"},
    )
    objects = render(spec, canary(spec))
    for item in objects:
        if item["apiVersion"] not in ISTIO:
            published.validate(item, "1.36")
    pods = [item["spec"]["template"]["spec"] for item in objects if item["kind"] == "Deployment"]
    assert [pod["containers"][0]["image"] for pod in pods] == ["server:1", "server:2"]
    for pod in pods:
        assert not pod.get("initContainers")
        assert {volume["name"] for volume in pod["volumes"]} == {"tmp", "shm"}
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == {"tmp", "shm"}
        names = {entry["name"] for entry in pod["containers"][0]["env"]}
        assert "SLIPWAY_MODEL_NAME" in names
        assert "SLIPWAY_MODEL_PATH" not in names


@pytest.mark.parametrize(("engine", "name", "layout"), [("triton", "sentiment", "triton"), ("vllm", "model", "plain")])
def test_the_model_is_fetched_and_verified_before_the_server_starts(engine: str, name: str, layout: str) -> None:
    pod = template(engine, "v2")
    init = fetch(pod)
    assert init["image"] == OPTIONS.runtime_image
    assert init["args"] == [
        *("fetch", "s3://models/v2", "--to", "/mnt/models", "--name", name, "--layout", layout),
        *("--max-artefact-bytes", str(1024**4), "--sha256", "ab" * 32),
        *("--storage-secret", "/etc/slipway/storage", "--public-key", "/etc/slipway/signature-key"),
        *("--signature", "c2ln"),
    ]
    mounts = {mount["mountPath"]: mount for mount in init["volumeMounts"]}
    assert set(mounts) == {"/tmp", "/mnt/models", "/etc/slipway/storage", "/etc/slipway/signature-key"}
    served = {mount["mountPath"]: mount for mount in server(pod)["volumeMounts"]}
    assert set(served) == {"/tmp", "/mnt/models", "/dev/shm"}
    assert served["/mnt/models"]["readOnly"] is True
    assert "readOnly" not in mounts["/mnt/models"]
    assert "s3" not in str(server(pod)["env"])


def test_the_models_volume_can_be_another() -> None:
    """A node's disk may be too small for a language model."""
    claim = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {}}}}
    pod = template(
        "vllm", podTemplate={"spec": {"volumes": [{"name": "models", "emptyDir": None, "ephemeral": claim}]}}
    )
    assert {"name": "models", "ephemeral": claim} in pod["spec"]["volumes"]


def test_a_claim_is_mounted_where_it_is_copied_from() -> None:
    init = fetch(template("triton", "v1"))
    assert init["args"][:2] == ["fetch", "file:///models/models/sentiment/v1"]
    assert "/models/models" in {mount["mountPath"] for mount in init["volumeMounts"]}


@pytest.mark.parametrize("engine", FOREIGN)
def test_pods_stay_restricted(engine: str) -> None:
    pod = template(engine)
    security = pod["spec"]["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security.get("runAsUser") == {"triton": 1000, "vllm": 2000, "custom": None}[engine]
    for container in (server(pod), fetch(pod)):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(("engine", "sleep"), [("triton", 5), ("custom", 5), ("vllm", 65)])
def test_a_server_that_does_not_drain_goes_on_until_nobody_asks_it(engine: str, sleep: int) -> None:
    pod = template(engine)
    assert server(pod)["lifecycle"] == {"preStop": {"sleep": {"seconds": sleep}}}
    assert pod["spec"]["terminationGracePeriodSeconds"] == sleep + 60 + 15


def test_slipways_own_server_fetches_and_drains_by_itself() -> None:
    pod = template("slipway")
    assert "initContainers" not in pod["spec"]
    assert "lifecycle" not in server(pod)
    assert pod["spec"]["terminationGracePeriodSeconds"] == 75


def test_an_engines_own_image_does_not_depend_on_the_operators() -> None:
    spec = spec_of("triton")
    revision = next(iter(revisions_of(spec).values()))
    made = pod_template(IDENTITY, revision, RenderOptions(runtime_image="other:2"))
    assert server(made)["image"] == server(template("triton"))["image"]
    assert fetch(made)["image"] == "other:2"

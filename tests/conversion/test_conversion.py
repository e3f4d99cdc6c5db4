"""What becomes of the fields that matter."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from slipway.api.validation import validate
from slipway.cli import main
from slipway.cli.render import Moment, rendered
from slipway.conversion import Converted, Severity, convert
from slipway.resources import RenderOptions

from tests import published

SAMPLES = Path(__file__).parent / "samples"


def converted(sample: str) -> dict[str, Converted]:
    conversion = convert(yaml.safe_load_all((SAMPLES / sample).read_text()))
    return {document.title: document for document in conversion.documents}


def service(predictor: dict[str, Any], **annotations: str) -> Converted:
    metadata = {"name": "m", "annotations": annotations}
    api = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService"}
    [document] = convert([{**api, "metadata": metadata, "spec": {"predictor": predictor}}]).documents
    return document


def told(document: Converted) -> dict[str, Severity]:
    return {finding.path: finding.severity for finding in document.findings}


def test_a_model_keeps_its_load_its_place_and_its_limits() -> None:
    document = converted("kserve.yaml")["InferenceService reviews"]
    assert document.made is not None
    spec = document.made["spec"]
    assert spec["versions"] == [{"name": "v1", "uri": "s3://models/reviews/3", "format": "onnx"}]
    assert spec["autoscaling"] == {"minReplicas": 2, "maxReplicas": 12, "qps": {"target": 40}}
    assert spec["rollout"] == {"steps": [{"weight": 10, "pause": {}}]}
    assert spec["runtime"]["limits"] == {"timeout": "20s", "maxConcurrency": 16}
    assert spec["traffic"]["resilience"] == {"timeout": "20s"}
    pod = spec["runtime"]["podTemplate"]["spec"]
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert pod["containers"] == [{"name": "server", "envFrom": [{"configMapRef": {"name": "settings"}}]}]
    assert document.made["metadata"]["annotations"] == {"owner": "search@example.com"}
    said = told(document)
    assert said["spec.transformer"] is Severity.DROPPED
    assert said["spec.predictor.logger"] is Severity.DROPPED
    assert said["spec.predictor.canaryTrafficPercent"] is Severity.PARTLY


@pytest.mark.parametrize(
    ("name", "engine", "uri"),
    [
        ("digits", None, "pvc://models/digits"),
        ("embedder", "triton", "gs://bucket/repository"),
        ("chat", "vllm", "hf://acme/small-chat@main"),
        ("own", "custom", "s3://models/own"),
    ],
)
def test_servers_become_engines(name: str, engine: str | None, uri: str) -> None:
    made = converted("kserve.yaml")[f"InferenceService {name}"].made
    assert made is not None
    assert made["spec"]["runtime"].get("engine") == engine
    assert made["spec"]["versions"][0]["uri"] == uri


def test_a_framework_without_engine_is_not_converted() -> None:
    document = converted("kserve.yaml")["InferenceService trees"]
    assert document.failed
    assert document.made is None
    assert "sklearn" in document.findings[0].message


@pytest.mark.parametrize(
    ("predictor", "expected"),
    [
        ({"scaleMetric": "concurrency", "scaleTarget": 4}, {"concurrency": {"target": 4}}),
        ({"scaleMetric": "cpu", "scaleTarget": 80}, {}),
        ({"scaleTarget": 4}, {"concurrency": {"target": 4}}),
        ({"minReplicas": 0}, {"minReplicas": 1}),
        ({"minReplicas": 12}, {"minReplicas": 12, "maxReplicas": 12}),
        ({"maxReplicas": 3, "minReplicas": 3}, {"minReplicas": 3, "maxReplicas": 3}),
    ],
)
def test_scaling(predictor: dict[str, Any], expected: dict[str, Any]) -> None:
    made = service({"onnx": {"storageUri": "s3://b/m"}, **predictor}).made
    assert made is not None
    assert made["spec"].get("autoscaling", {}) == expected


def test_scaling_on_cpu_and_to_zero_is_spoken_of() -> None:
    said = told(service({"onnx": {"storageUri": "s3://b/m"}, "minReplicas": 0, "scaleMetric": "cpu", "scaleTarget": 8}))
    assert said == {
        "spec.predictor.minReplicas": Severity.PARTLY,
        "spec.predictor.scaleMetric": Severity.DROPPED,
        "spec.predictor.scaleTarget": Severity.DROPPED,
    }


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ({"storage": {"key": "k", "path": "/a/b", "parameters": {"type": "s3", "bucket": "c"}}}, "s3://c/a/b"),
        ({"storageUri": "/mnt/here"}, "file:///mnt/here"),
        ({"storageUri": "pvc://claim"}, "pvc://claim/."),
        ({"storageUri": "hdfs://a/b"}, None),
        ({"storageUri": "http://a/b"}, None),
        ({}, None),
    ],
)
def test_storage(given: dict[str, Any], uri: str | None) -> None:
    document = service({"model": {"modelFormat": {"name": "torchscript"}, **given}})
    assert document.failed is (uri is None)
    assert uri is None or (document.made or {})["spec"]["versions"][0]["uri"] == uri


@pytest.mark.parametrize(
    ("arguments", "uri", "kept", "severities"),
    [
        (["--model_name=llama3", "--model_id=meta/llama"], "hf://meta/llama", None, "du"),
        (["--model-id", "meta/llama", "--model_revision=abc"], "hf://meta/llama@abc", None, "uu"),
        (["--model_id=a/b", "--max-model-len", "512", "--trust-remote-code"], "hf://a/b",
         ["--max-model-len", "512", "--trust-remote-code"], "upp"),
        (["--model_id=a/b", "--task=text_generation", "--backend", "vllm", "--port=80"], "hf://a/b", None, "uuuu"),
        (["--model_id=a/b", "--task=fill_mask"], "hf://a/b", None, "ud"),
        (["--model_id=nobody"], None, None, ""),
        (["--model_name=llama3"], None, None, ""),
    ],
)  # fmt: skip
def test_a_hugging_face_model_that_is_named_in_arguments(
    arguments: list[str], uri: str | None, kept: list[str] | None, severities: str
) -> None:
    document = service({"model": {"modelFormat": {"name": "vllm"}, "args": arguments}})
    assert document.failed is (uri is None)
    if document.made is not None:
        assert document.made["spec"]["versions"] == [{"name": "v1", "uri": uri}]
        assert document.made["spec"]["runtime"].get("args") == kept
        assert "".join(finding.severity.value[0] for finding in document.findings) == severities


def test_a_server_without_http_is_spoken_of() -> None:
    container = {"name": "kserve-container", "image": "ours:1", "ports": [{"name": "h2c", "containerPort": 8081}]}
    document = service({"containers": [container]})
    assert (document.made or {})["spec"]["versions"] == [{"name": "v1"}]
    assert told(document)["spec.predictor.containers[0].ports"] is Severity.PARTLY


def test_what_the_api_refuses_is_taken_out_and_told() -> None:
    document = service({"onnx": {"storageUri": "s3://b/m"}, "maxReplicas": 20_000, "timeout": -1})
    assert document.made is not None
    assert validate(document.made).problems == ()
    assert told(document)["spec.predictor.maxReplicas"] is Severity.DROPPED
    assert told(document)["spec.predictor.timeout"] is Severity.DROPPED


def test_an_annotation_that_turns_scaling_off() -> None:
    document = service({"onnx": {"storageUri": "s3://b/m"}}, **{"serving.kserve.io/autoscalerClass": "none"})
    assert (document.made or {})["spec"]["autoscaling"] == {"mode": "None"}


def test_a_deployment_is_converted_with_its_autoscaler_and_service() -> None:
    documents = converted("deployment.yaml")
    made = documents["Deployment fraud"].made
    assert made is not None
    spec = made["spec"]
    assert spec["autoscaling"] == {
        "minReplicas": 3, "maxReplicas": 20, "qps": {"target": 25.5}, "stabilizationWindow": "600s",
        "scaleDown": {"maxPercent": 10}, "scaleUp": {"maxReplicas": 4},
    }  # fmt: skip
    assert spec["runtime"]["engine"] == "custom"
    [server] = spec["runtime"]["podTemplate"]["spec"]["containers"]
    assert server["ports"] == [{"name": "http", "containerPort": 5000}]
    assert server["readinessProbe"] == {"tcpSocket": {"port": 5000}, "httpGet": None, "periodSeconds": 3}
    assert spec["runtime"]["podTemplate"]["metadata"]["labels"] == {"tier": "model"}, "the old selector stays behind"
    assert "delete this one" in documents["Service fraud"].findings[0].message
    assert told(documents["HorizontalPodAutoscaler fraud"])["spec.metrics[0]"] is Severity.DROPPED


def test_a_deployment_without_autoscaler_keeps_its_number() -> None:
    deployment = yaml.safe_load((SAMPLES / "deployment.yaml").read_text())["items"][0]
    pod = deployment["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "model", "persistentVolumeClaim": {"claimName": "fraud-12"}}]
    made = convert([deployment]).objects[0]
    assert made["spec"]["autoscaling"] == {"mode": "None"}
    assert made["spec"]["replicas"] == 3
    assert made["spec"]["versions"] == [{"name": "v1"}], "it mounts its claim by itself, as before"
    assert made["spec"]["runtime"]["podTemplate"]["spec"]["volumes"] == pod["volumes"]


@pytest.mark.parametrize(
    ("ports", "service", "expected"),
    [
        ([{"containerPort": 80}], [{"port": 80}], [("http", 80)]),
        ([{"name": "h2c", "containerPort": 9}, {"name": "http1", "containerPort": 8}], [], [("grpc", 9), ("http", 8)]),
        ([{"name": "prom", "containerPort": 9}, {"containerPort": 8}], [], [("metrics", 9), ("http", 8)]),
        ([], [{"port": 80, "targetPort": 5000}], [("http", 5000)]),
        ([], [{"port": 8501}], [("http", 8501)]),
        ([], [{"port": 80, "targetPort": "web"}], []),
        (
            [],
            [{"name": "grpc", "port": 9000}, {"name": "web", "port": 80, "targetPort": 5}],
            [("grpc", 9000), ("http", 5)],
        ),
    ],
)
def test_where_a_server_listens(ports: list[Any], service: list[Any], expected: list[tuple[str, int]]) -> None:
    deployment = yaml.safe_load((SAMPLES / "deployment.yaml").read_text())["items"][0]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    del container["readinessProbe"]
    container["ports"] = ports
    meta = {"name": "fraud", "namespace": "risk"}
    kind = {"apiVersion": "v1", "kind": "Service", "metadata": meta}
    document, _ = convert([deployment, {**kind, "spec": {"selector": {"app": "fraud"}, "ports": service}}]).documents
    assert document.made is not None
    [server] = document.made["spec"]["runtime"]["podTemplate"]["spec"]["containers"]
    found = [(port["name"], port["containerPort"]) for port in server.get("ports", ())]
    assert found == expected
    assumed = [finding.message for finding in document.findings if "nothing says where it listens" in finding.message]
    assert len(assumed) == (not expected)


@pytest.mark.parametrize(("name", "fits"), [("m" * 51, True), ("m" * 52, False), ("9m", False), ("m-", False)])
def test_names_that_a_service_cannot_have_are_refused(name: str, fits: bool) -> None:
    api = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": {"name": name}}
    [document] = convert([{**api, "spec": {"predictor": {"onnx": {"storageUri": "s3://b/m"}}}}]).documents
    assert document.failed is not fits


def test_no_secret_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["convert", "-f", str(SAMPLES / "deployment.yaml")])
    captured = capsys.readouterr()
    assert "Secret pull" in captured.out
    assert "c2VjcmV0" not in captured.out + captured.err


def test_output_can_be_linted_and_tells_what_is_not_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "-f", str(SAMPLES / "kserve.yaml")]) == 1, "trees has no engine"
    captured = capsys.readouterr()
    assert "# dropped: spec.transformer: " in captured.out
    assert "InferenceService reviews: dropped: spec.transformer: " in captured.err
    assert captured.err.endswith("5 converted, 1 failed\n")
    written = tmp_path / "out.yaml"
    written.write_text(captured.out)
    assert main(["lint", "-f", str(written)]) == 0


@pytest.mark.parametrize("sample", ["kserve.yaml", "deployment.yaml"])
def test_pods_of_what_comes_out_are_valid(sample: str) -> None:
    options = RenderOptions(runtime_image="slipway-runtime:0.1.0", cluster_domain="cluster.local")
    for document in converted(sample).values():
        if document.made is not None:
            for obj in rendered(document.made, "", Moment(), options):
                if obj["kind"] in ("Deployment", "Service", "PodDisruptionBudget"):
                    published.validate(obj, "1.33")


def test_strict_fails_for_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["convert", "--strict", "-f", str(SAMPLES / "deployment.yaml")]) == 2
    api = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "m", "uid": "u"}}
    whole = tmp_path / "whole.yaml"
    whole.write_text(yaml.safe_dump({**api, "spec": {"predictor": {"onnx": {"storageUri": "s3://b/m"}}}}))
    with whole.open() as given:
        monkeypatch.setattr("sys.stdin", given)
        assert main(["convert", "--strict", "-f", "-"]) == 0


def test_files_that_cannot_be_read_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "-f", str(tmp_path / "none.yaml")]) == 1
    assert "none.yaml" in capsys.readouterr().err
    (tmp_path / "bad.yaml").write_text("a: [")
    assert main(["convert", "-f", str(tmp_path / "bad.yaml")]) == 1
    assert "is no YAML" in capsys.readouterr().err

"""Whatever goes in, each leaf of it is in the ModelDeployment or is spoken of."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from slipway.api.validation import validate
from slipway.conversion import Conversion, convert
from slipway.conversion.ledger import leaves

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.yaml"))
MEANS = {
    "rps": "qps", "Always": "", "hf://a/b:rev": "hf://a/b@rev", "hf://acme/small-chat:main": "hf://acme/small-chat@main",
}  # fmt: skip
"""What says the same in other words."""

words = st.text("abcdefgh", min_size=3, max_size=8)
numbers = st.integers(-3, 20_000)
scalars = st.one_of(words, numbers, st.booleans(), st.floats(0, 10), st.none())
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2), max_leaves=5
)


def fields(**known: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of the known fields, usually of the right type, and sometimes one that nobody knows."""
    optional = {name: st.one_of(value, value, value, anything) for name, value in known.items()}
    return st.builds(
        lambda given, more: {**more, **given},
        st.fixed_dictionaries({}, optional=optional),
        st.one_of(st.just({}), st.dictionaries(words, anything, max_size=1)),
    )


names = st.from_regex(r"[a-z][a-z0-9]{2,10}", fullmatch=True)
quantities = st.sampled_from(["1", "500m", "4Gi", 2])
strings = st.dictionaries(words, words, max_size=2)
resources = fields(
    requests=st.dictionaries(words, quantities, max_size=2), limits=st.dictionaries(words, quantities, max_size=2)
)
variables = st.lists(
    fields(name=names, value=words, valueFrom=fields(secretKeyRef=fields(name=names, key=words))), max_size=3
)
ports = st.lists(fields(containerPort=st.sampled_from([8080, 9000, 5000]), name=names, protocol=words), max_size=2)
probes = fields(httpGet=fields(path=words, port=st.sampled_from([8080, "http"])), periodSeconds=numbers)
container_fields = {
    "name": st.sampled_from(["kserve-container", "server", "shipper"]), "image": words,
    "command": st.lists(words, max_size=2), "args": st.lists(words, max_size=2), "env": variables,
    "envFrom": st.lists(strings, max_size=1),
    "resources": resources, "ports": ports, "readinessProbe": probes, "livenessProbe": probes,
    "volumeMounts": st.lists(fields(name=names, mountPath=words), max_size=1), "securityContext": strings,
}  # fmt: skip
containers = st.lists(fields(**container_fields), max_size=2)
pod_fields = {
    "nodeSelector": strings, "tolerations": st.lists(strings, max_size=1), "affinity": strings,
    "serviceAccountName": names, "serviceAccount": names, "terminationGracePeriodSeconds": numbers,
    "containers": containers, "initContainers": containers, "volumes": st.lists(strings, max_size=1),
    "restartPolicy": st.just("Always"), "priorityClassName": names,
}  # fmt: skip
uris = st.sampled_from(
    ["s3://bucket/a", "gs://bucket/a", "pvc://claim/a", "hf://a/b:rev", "hf://a/b", "oci://r/i:1", "https://h/a.zip",
     "/mnt/a", "hdfs://x", "https://x.blob.core.windows.net/a/b"]
)  # fmt: skip
servers = {
    **container_fields, "storageUri": uris, "runtimeVersion": words, "protocolVersion": st.sampled_from(["v1", "v2"]),
    "storage": fields(key=words, path=words, parameters=fields(type=st.sampled_from(["s3", "hdfs"]), bucket=names)),
}  # fmt: skip
formats = st.sampled_from(["onnx", "pytorch", "torchscript", "sklearn"])
component = {
    "minReplicas": numbers, "maxReplicas": numbers, "scaleTarget": numbers, "timeout": numbers,
    "scaleMetric": st.sampled_from(["rps", "concurrency", "cpu"]), "containerConcurrency": numbers,
    "canaryTrafficPercent": numbers, "logger": strings, "labels": strings, "annotations": strings,
    "batcher": fields(maxBatchSize=numbers, maxLatency=numbers, timeout=numbers),
    "deploymentStrategy": fields(type=st.sampled_from(["Recreate", "RollingUpdate"])),
    "autoScaling": strings, "workerSpec": strings,
}  # fmt: skip
predictors = st.builds(
    lambda base, model: {**base, **model},
    fields(**pod_fields, **component),
    st.one_of(
        st.builds(
            lambda uri, name, model: {"model": {"modelFormat": {"name": name}, "storageUri": uri, **model}},
            uris,
            formats,
            fields(**servers),
        ),
        st.builds(
            lambda uri, name, model: {name: {"storageUri": uri, **model}},
            uris,
            st.sampled_from(["onnx", "pytorch"]),
            fields(**servers),
        ),
        st.just({}),
    ),
)
annotations = st.dictionaries(
    st.sampled_from(
        ["serving.kserve.io/deploymentMode", "serving.kserve.io/autoscalerClass", "serving.kserve.io/stop",
         "sidecar.istio.io/inject", "owner"]
    ),
    st.sampled_from(["none", "external", "true", "hpa"]), max_size=3,
)  # fmt: skip
metadata = st.builds(
    lambda name, more: {"name": name, **more},
    names,
    fields(
        namespace=names,
        labels=strings,
        uid=words,
        ownerReferences=st.lists(strings, max_size=1),
        annotations=annotations,
    ),
)
services = st.builds(
    lambda meta, predictor, more: {
        "apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": meta,
        "spec": {"predictor": predictor, **more},
    },
    metadata, predictors, fields(transformer=strings, explainer=strings),
)  # fmt: skip


policies = st.lists(fields(type=st.sampled_from(["Pods", "Percent"]), value=numbers, periodSeconds=numbers), max_size=2)
metrics = st.lists(
    fields(
        type=st.sampled_from(["Pods", "Resource", "External"]),
        pods=fields(
            metric=fields(
                name=st.sampled_from(["requests_per_second", "requests_in_flight", "gpu_utilization", "odd"])
            ),
            target=fields(type=st.just("AverageValue"), averageValue=st.sampled_from(["3", 7])),
        ),
    ),
    max_size=2,
)
scalers = fields(
    minReplicas=numbers, maxReplicas=numbers, metrics=metrics, targetCPUUtilizationPercentage=numbers,
    behavior=fields(
        scaleUp=fields(stabilizationWindowSeconds=numbers, policies=policies),
        scaleDown=fields(stabilizationWindowSeconds=numbers, policies=policies, selectPolicy=words),
    ),
)  # fmt: skip
workloads = st.builds(
    lambda meta, image, pod, server, labels, more: {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta,
        "spec": {
            **more,
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x", **labels}},
                "spec": {**pod, "containers": [{"name": "main", "image": image, **server}]},
            },
        },
    },
    metadata, words, fields(**pod_fields), fields(**container_fields), strings,
    fields(replicas=numbers, paused=st.booleans(), minReadySeconds=numbers, progressDeadlineSeconds=numbers,
           revisionHistoryLimit=numbers, strategy=fields(type=st.sampled_from(["Recreate", "RollingUpdate"]))),
)  # fmt: skip


def unaccounted(source: Mapping[str, Any], conversion: Conversion, number: int = 0) -> Iterator[tuple[str, Any]]:
    """Leaves of a document that are neither in what was made of the first one nor spoken of."""
    told = {finding.path for finding in conversion.documents[number].findings}
    made = json.dumps(conversion.documents[0].made, default=str, ensure_ascii=False)
    for path in leaves(source):
        ancestors = {written(path[:length]) for length in range(len(path) + 1)}
        value: Any = source
        for key in path:
            value = value[key]
        if ancestors & told or path[0] in ("apiVersion", "kind") or value in (None, {}, []):
            continue
        if json.dumps(MEANS.get(str(value), value), ensure_ascii=False).strip('"') not in made:
            yield written(path), value


def written(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


@settings(max_examples=150)
@given(services)
def test_no_leaf_of_an_inference_service_is_lost(source: dict[str, Any]) -> None:
    conversion = convert([source])
    if not conversion.documents[0].failed:
        assert list(unaccounted(source, conversion)) == []


@settings(max_examples=150)
@given(services)
def test_what_comes_out_is_valid(source: dict[str, Any]) -> None:
    for made in convert([source]).objects:
        assert validate(made).problems == ()
        assert not [warning for warning in validate(made).warnings if warning.reason == "UnknownField"]


@settings(max_examples=150)
@given(workloads, scalers)
def test_no_leaf_of_a_deployment_and_its_autoscaler_is_lost(source: dict[str, Any], wanted: dict[str, Any]) -> None:
    meta = {
        "name": "any",
        **({"namespace": source["metadata"]["namespace"]} if "namespace" in source["metadata"] else {}),
    }
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": source["metadata"]["name"]}
    scaler = {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta,
        "spec": {**wanted, "scaleTargetRef": target},
    }  # fmt: skip
    conversion = convert([source, scaler])
    if not conversion.documents[0].failed:
        assert list(unaccounted(source, conversion)) == []
        inner = {"spec": wanted}
        assert list(unaccounted(inner, conversion, 1)) == []
        assert all(validate(made).problems == () for made in conversion.objects)


@given(anything)
def test_anything_else_is_spoken_of(source: Any) -> None:
    conversion = convert([source])
    assert source is None or isinstance(source, dict | list) or conversion.documents
    assert not conversion.objects


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_samples_are_accounted_for(sample: Path) -> None:
    for source in yaml.safe_load_all(sample.read_text()):
        for item in source.get("items", [source]):
            conversion = convert([item])
            if conversion.objects:
                assert list(unaccounted(item, conversion)) == []

"""Pods: the server's command line, mounts, restrictions, and what a user may lay over them."""

import json

from slipway.api.revisions import revision_of
from slipway.resources import RenderOptions

from tests.resources.rendering import (
    IDENTITY,
    arguments_of,
    canary,
    entry_of,
    of_kind,
    raw_spec,
    render,
    revisions_of,
    server_of,
    template_of,
)


def test_command_line_of_the_server() -> None:
    spec = raw_spec()
    assert arguments_of(render(spec, canary(spec)), "v2") == {
        "--model-name": "sentiment",
        "--model-version": "v2",
        "--revision": revision_of("sentiment", spec, "v2").name,
        "--uri": "file:///srv/models/v2",
        "--sha256": "ab" * 32,
        "--format": "auto",
        "--device": "auto",
        "--precision": "fp32",
        "--max-batch-size": "32",
        "--max-delay": "5ms",
        "--adaptive": "true",
        "--timeout": "30s",
        "--max-queue": "512",
        "--max-request-bytes": "67108864",
        "--max-concurrency": "0",
        "--warmup-requests": "10",
        "--shadow-file": "/etc/slipway/shadow/shadow.json",
        "--grace": "60s",
        "--http-port": "8080",
        "--grpc-port": "9000",
    }


def test_tenants_the_cache_and_the_budget_become_flags_where_they_are_turned_on() -> None:
    tenants = {
        "header": "x-tenant",
        "default": {"requestsPerSecond": 50, "priority": 1},
        "overrides": [{"name": "gold", "requestsPerSecond": 500, "priority": 10}],
    }
    runtime = {
        "tenants": tenants,
        "cache": {"maxBytes": "64Mi", "ttl": "90s"},
        "limits": {"maxInflightBytes": "1Gi"},
    }
    spec = raw_spec(runtime=runtime)
    given = arguments_of(render(spec, canary(spec)), "v2")
    assert json.loads(given.pop("--tenants")) == tenants | {"claim": ""}
    assert {name: given[name] for name in ("--cache-bytes", "--cache-ttl", "--max-inflight-bytes")} == {
        "--cache-bytes": "67108864",
        "--cache-ttl": "90s",
        "--max-inflight-bytes": "1073741824",
    }


def test_a_claim_is_mounted_read_only_and_becomes_a_file_uri() -> None:
    spec = raw_spec()
    objects = render(spec, canary(spec))
    assert arguments_of(objects, "v1")["--uri"] == "file:///models/models/sentiment/v1"
    assert {"name": "model", "mountPath": "/models/models", "readOnly": True} in server_of(objects)["volumeMounts"]
    claim = {"claimName": "models", "readOnly": True}
    assert {"name": "model", "persistentVolumeClaim": claim} in template_of(objects)["spec"]["volumes"]


def test_credentials_and_keys_are_mounted_and_never_read() -> None:
    spec = raw_spec()
    key = {"configMap": "keys", "key": "cosign.pub"}
    spec["versions"][1] |= {
        "uri": "s3://models/v2",
        "storageSecret": "s3",
        "signature": {"publicKey": key, "uri": "pvc://signatures/v2.sig"},
    }
    spec["versions"][0]["signature"] = {"publicKey": {"configMap": "keys"}, "value": "AAAA"}
    objects = render(spec, canary(spec))
    flags = arguments_of(objects, "v2")
    assert flags["--uri"] == "s3://models/v2" and flags["--storage-secret"] == "/etc/slipway/storage"
    assert flags["--public-key"] == "/etc/slipway/signature-key"
    assert flags["--signature-uri"] == "file:///models/signatures/v2.sig"
    volumes = {volume["name"]: volume for volume in template_of(objects, "v2")["spec"]["volumes"]}
    assert volumes["storage"]["secret"] == {"secretName": "s3"}
    assert volumes["signature"]["persistentVolumeClaim"] == {"claimName": "signatures", "readOnly": True}
    items = [{"key": "cosign.pub", "path": "cosign.pub"}]
    assert volumes["signature-key"]["configMap"] == {"name": "keys", "items": items}
    mounts = {mount["name"]: mount["mountPath"] for mount in server_of(objects, "v2")["volumeMounts"]}
    assert mounts["storage"] == "/etc/slipway/storage" and mounts["signature"] == "/models/signatures"
    assert arguments_of(objects, "v1")["--signature"] == "AAAA"
    first = {volume["name"] for volume in template_of(objects, "v1")["spec"]["volumes"]}
    assert "signature" not in first and "storage" not in first and "signature-key" in first


def test_goldens_are_mounted_and_named_as_warm_up() -> None:
    spec = raw_spec()
    spec["versions"][0]["goldens"] = {"configMap": "known-answers"}
    objects = render(spec, canary(spec))
    assert arguments_of(objects)["--warmup-file"] == "/etc/slipway/goldens"
    mounted = {"name": "goldens", "mountPath": "/etc/slipway/goldens", "readOnly": True}
    assert mounted in server_of(objects)["volumeMounts"]
    assert {"name": "goldens", "configMap": {"name": "known-answers"}} in template_of(objects)["spec"]["volumes"]


def test_declared_tensors_travel_as_json() -> None:
    spec = raw_spec()
    spec["versions"][0]["inputs"] = [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    declared = arguments_of(render(spec, canary(spec)))["--inputs"]
    assert json.loads(declared) == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]


def test_durations_are_written_so_that_everybody_can_read_them() -> None:
    spec = raw_spec(
        runtime={
            "limits": {"timeout": "1h30m"},
            "batching": {"maxDelay": "1.5s"},
            "terminationGracePeriod": "1d",
        }
    )
    objects = render(spec, canary(spec))
    flags = arguments_of(objects)
    assert (flags["--timeout"], flags["--max-delay"], flags["--grace"]) == ("5400s", "1500ms", "86400s")
    assert template_of(objects)["spec"]["terminationGracePeriodSeconds"] == 86415


def test_image_of_the_installation_unless_the_user_names_one() -> None:
    spec = raw_spec()
    spec["versions"][1]["runtime"] = {"image": "own:1"}
    objects = render(spec, canary(spec), options=RenderOptions(runtime_image="slipway-runtime:9"))
    assert server_of(objects, "v1")["image"] == "slipway-runtime:9"
    assert server_of(objects, "v2")["image"] == "own:1"


def test_pods_meet_the_restricted_pod_security_standard() -> None:
    spec = raw_spec()
    objects = render(spec, canary(spec))
    pod = template_of(objects)["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["automountServiceAccountToken"] is False
    assert server_of(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert {"name": "tmp", "mountPath": "/tmp"} in server_of(objects)["volumeMounts"]
    assert not any("hostPath" in volume for volume in pod["volumes"])


def test_pods_are_scraped_and_say_nothing_about_sidecars() -> None:
    spec = raw_spec()
    annotations = template_of(render(spec, canary(spec)))["metadata"]["annotations"]
    assert annotations["prometheus.io/scrape"] == "true"
    assert annotations["prometheus.io/port"] == "8080"
    assert annotations["prometheus.io/path"] == "/metrics"
    assert not any("istio" in key for key in annotations)


def test_user_variables_replace_ours_and_keep_their_place() -> None:
    spec = raw_spec(runtime={"env": [{"name": "HOME", "value": "/home/me"}, {"name": "X", "value": ""}]})
    environment = server_of(render(spec, canary(spec)))["env"]
    assert [variable["name"] for variable in environment] == [
        "POD_NAME", "POD_NAMESPACE", "POD_IP", "NODE_NAME", "HOME", "X",
    ]  # fmt: skip
    assert environment[-2:] == [{"name": "HOME", "value": "/home/me"}, {"name": "X", "value": ""}]


def test_overlay_merges_named_items_and_replaces_plain_lists() -> None:
    overlay = {
        "metadata": {"annotations": {"prometheus.io/port": "9102"}, "labels": {"team": "nlp"}},
        "spec": {
            "containers": [
                {
                    "name": "server",
                    "args": ["own"],
                    "livenessProbe": None,
                    "ports": [{"containerPort": 8080, "name": "web"}, {"containerPort": 9102, "name": "metrics"}],
                    "env": [{"name": "HOME", "value": "/data"}, {"name": "EXTRA", "value": "1"}],
                    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
                },
                {"name": "sidecar", "image": "sidecar:1"},
            ],
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "shared", "emptyDir": {}}],
            "nodeSelector": {"gpu": "a100"},
            "tolerations": [{"operator": "Exists"}],
        },
    }
    spec = raw_spec(runtime={"podTemplate": overlay})
    objects = render(spec, canary(spec))
    server, pod = server_of(objects), template_of(objects)["spec"]
    assert server["args"] == ["own"]
    assert "livenessProbe" not in server
    assert [(port["containerPort"], port["name"]) for port in server["ports"]] == [
        (8080, "web"), (9000, "grpc"), (9102, "metrics"),
    ]  # fmt: skip
    assert [variable["name"] for variable in server["env"]][-2:] == ["HOME", "EXTRA"]
    assert {"name": "HOME", "value": "/data"} in server["env"]
    assert [mount["mountPath"] for mount in server["volumeMounts"]] == [
        "/tmp", "/etc/slipway/shadow", "/models/models", "/shared",
    ]  # fmt: skip
    assert [container["name"] for container in pod["containers"]] == ["server", "sidecar"]
    assert pod["volumes"][0] == {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    metadata = template_of(objects)["metadata"]
    assert metadata["annotations"]["prometheus.io/port"] == "9102"
    assert metadata["annotations"]["prometheus.io/scrape"] == "true"
    assert metadata["labels"]["team"] == "nlp"


def test_overlay_cannot_take_pods_out_of_their_selectors() -> None:
    overlay = {"metadata": {"labels": {"slipway.dev/revision": "x", "slipway.dev/model-deployment": None}}}
    for template in (overlay, {"metadata": None}, {"metadata": {"labels": None}}):
        spec = raw_spec(runtime={"podTemplate": template})
        objects = render(spec, canary(spec))
        for deployment in of_kind(objects, "Deployment"):
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_overlay_cannot_hide_pods_from_the_operator() -> None:
    """Only what carries all of our labels is watched: other pods would never be seen to be ready."""
    labels = {"app.kubernetes.io/managed-by": "helm", "slipway.dev/version": "x", "team": "nlp"}
    spec = raw_spec(runtime={"podTemplate": {"metadata": {"labels": labels}}})
    for deployment in of_kind(render(spec, canary(spec)), "Deployment"):
        found = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["metadata"]["labels"].items() <= found.items()
        assert found["team"] == "nlp"


def test_pod_template_does_not_depend_on_what_is_not_in_the_revision() -> None:
    """Traffic, rollout, scaling and role change around running pods without replacing them."""
    before = raw_spec()
    after = before | {
        "traffic": {"hosts": ["x.example.com"]},
        "rollout": {"progressDeadline": "5m"},
        "autoscaling": {"maxReplicas": 3},
        "serve": "v2",
    }
    revision = revisions_of(before)[revision_of(IDENTITY.name, before, "v1").name]
    small = render(before, (entry_of(revision),))
    grown = render(after, (entry_of(revision, replicas=7, weight=100),))
    assert template_of(small) == template_of(grown)


def test_tracing_is_told_by_opentelemetrys_variables() -> None:
    spec = raw_spec(runtime={"tracing": {"endpoint": "http://collector.observability:4318", "sampleRatio": 0.25}})
    objects = render(spec, canary(spec))
    names = [variable["name"] for variable in server_of(objects)["env"]]
    found = {variable["name"]: variable.get("value") for variable in server_of(objects)["env"]}
    assert found["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector.observability:4318"
    assert found["OTEL_TRACES_SAMPLER_ARG"] == "0.25"
    assert found["OTEL_SERVICE_NAME"] == "sentiment"
    attributes = dict(one.split("=") for one in str(found["OTEL_RESOURCE_ATTRIBUTES"]).split(","))
    assert (attributes["service.version"], attributes["k8s.pod.name"]) == ("v1", "$(POD_NAME)")
    # A reference is filled in from variables that come before it.
    assert names.index("POD_NAME") < names.index("OTEL_RESOURCE_ATTRIBUTES")


def test_without_an_endpoint_nothing_is_said_of_tracing() -> None:
    spec = raw_spec(runtime={"tracing": {"sampleRatio": 1}})
    assert not [one for one in server_of(render(spec, canary(spec)))["env"] if one["name"].startswith("OTEL_")]


def test_a_users_variable_takes_the_place_of_tracings() -> None:
    spec = raw_spec(
        runtime={
            "tracing": {"endpoint": "http://collector:4318"},
            "env": [{"name": "OTEL_SERVICE_NAME", "value": "mine"}],
        }
    )
    found = [one for one in server_of(render(spec, canary(spec)))["env"] if one["name"] == "OTEL_SERVICE_NAME"]
    assert found == [{"name": "OTEL_SERVICE_NAME", "value": "mine"}]

"""Built-in kinds: decoding, defaults, what is refused, deletion with grace, eviction, logs."""

import pytest
from aiohttp import web

from .conftest import MERGE, STRATEGIC, deployment, pod

CORE, APPS = "/api/v1/namespaces/team", "/apis/apps/v1/namespaces/team"


async def test_strict_decoding_names_unknown_fields_and_the_default_warns(client):
    body = deployment()
    body["spec"]["template"]["spec"]["containers"][0]["imagge"] = "x"
    refused = await client.post(f"{APPS}/deployments?fieldValidation=Strict", body)
    assert refused.code == 400
    assert 'unknown field "spec.template.spec.containers[0].imagge"' in refused.body["message"]
    warned = await client.post(f"{APPS}/deployments", body)
    assert warned.code == 201
    assert "unknown field" in warned.headers["Warning"]
    assert "imagge" not in warned.body["spec"]["template"]["spec"]["containers"][0]


async def test_values_of_the_wrong_type_are_a_bad_request(client):
    refused = await client.post(f"{APPS}/deployments", deployment(replicas="three"))
    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        (
            {"selector": None},
            {("spec.selector", "FieldValueRequired"), ("spec.template.metadata.labels", "FieldValueInvalid")},
        ),
        ({"replicas": -1}, {("spec.replicas", "FieldValueInvalid")}),
        ({"strategy": {"type": "Odd"}}, {("spec.strategy.type", "FieldValueNotSupported")}),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}},
            {("spec.strategy.rollingUpdate.maxUnavailable", "FieldValueInvalid")},
        ),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}},
            {("spec.strategy.rollingUpdate", "FieldValueForbidden")},
        ),
    ],
)
async def test_deployments_that_are_refused(client, change, causes):
    refused = await client.post(f"{APPS}/deployments", deployment(**change))
    assert (refused.code, refused.causes) == (422, causes)


@pytest.mark.parametrize(
    ("container", "causes"),
    [
        ({"name": "", "image": ""}, {("name", "FieldValueRequired"), ("image", "FieldValueRequired")}),
        ({"ports": [{"containerPort": 0}]}, {("ports[0].containerPort", "FieldValueRequired")}),
        ({"ports": [{"containerPort": 1, "name": "No"}]}, {("ports[0].name", "FieldValueInvalid")}),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, {("volumeMounts[0].name", "FieldValueNotFound")}),
        (
            {"resources": {"limits": {"nvidia.com/gpu": "0.5"}}},
            {(f"resources.{part}[nvidia.com/gpu]", "FieldValueInvalid") for part in ("limits", "requests")},
        ),
        (
            {"resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}},
            {("resources.requests", "FieldValueInvalid")},
        ),
        ({"readinessProbe": {}}, {("readinessProbe", "FieldValueRequired")}),
        ({"imagePullPolicy": "Often"}, {("imagePullPolicy", "FieldValueNotSupported")}),
    ],
)
async def test_containers_that_are_refused(client, container, causes):
    body = pod(containers=[{"name": "c", "image": "i:1", **container}])
    refused = await client.post(f"{CORE}/pods", body)
    assert refused.code == 422
    assert refused.causes == {(f"spec.containers[0].{field}", reason) for field, reason in causes}


async def test_quantities_are_stored_in_their_canonical_form_and_requests_default_to_limits(client):
    limits = {"cpu": "1500m", "memory": "2048Mi", "nvidia.com/gpu": 1}
    body = pod(containers=[{"name": "c", "image": "i", "resources": {"limits": limits}}])
    made = await client.post(f"{CORE}/pods", body)
    resources = made.body["spec"]["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"] == {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "1"}
    assert made.body["status"]["qosClass"] == "Guaranteed"
    assert made.body["spec"]["containers"][0]["imagePullPolicy"] == "Always"


async def test_a_pod_on_a_node_gets_time_to_end(client):
    await client.post(f"{CORE}/pods", pod(nodeName="n1", terminationGracePeriodSeconds=7))
    leaving = await client.delete(f"{CORE}/pods/p")
    assert leaving.body["metadata"]["deletionGracePeriodSeconds"] == 7
    assert (await client.get(f"{CORE}/pods/p")).code == 200
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": leaving.body["metadata"]["uid"]}}
    assert (await client.delete(f"{CORE}/pods/p", options)).code == 200
    assert (await client.get(f"{CORE}/pods/p")).code == 404


async def test_eviction_spends_the_disruption_budget(client):
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    budgets = "/apis/policy/v1/namespaces/team/poddisruptionbudgets"
    await client.post(budgets, budget)
    for name in ("p", "q"):
        await client.post(f"{CORE}/pods", pod(name))
        await client.patch(f"{CORE}/pods/{name}/status", {"status": {"phase": "Running"}}, MERGE)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    refused = await client.post(f"{CORE}/pods/p/eviction", eviction)
    assert (refused.code, refused.body["reason"]) == (429, "TooManyRequests")
    await client.patch(f"{budgets}/b/status", {"status": {"disruptionsAllowed": 1}}, MERGE)
    assert (await client.post(f"{CORE}/pods/p/eviction", eviction)).code == 201
    assert (await client.post(f"{CORE}/pods/q/eviction", {**eviction, "metadata": {"name": "q"}})).code == 429


async def test_services_keep_their_address_and_ask_for_sound_ones(client):
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}
    made = await client.post(f"{CORE}/services", service)
    kept = await client.put(f"{CORE}/services/s", service)
    assert kept.body["spec"]["clusterIP"] == made.body["spec"]["clusterIP"]
    moved = await client.patch(f"{CORE}/services/s", {"spec": {"clusterIP": "10.96.9.9"}}, MERGE)
    assert moved.causes == {("spec.clusterIPs[0]", "FieldValueInvalid")}
    outside = {"metadata": {"name": "t"}, "spec": {"ports": [{"port": 80}], "clusterIP": "1.2.3.4"}}
    assert (await client.post(f"{CORE}/services", outside)).causes == {("spec.clusterIPs", "FieldValueInvalid")}
    nameless = {"metadata": {"name": "u"}, "spec": {"ports": [{"port": 80}, {"port": 81}]}}
    assert (await client.post(f"{CORE}/services", nameless)).causes == {
        ("spec.ports[0].name", "FieldValueRequired"),
        ("spec.ports[1].name", "FieldValueRequired"),
    }


async def test_strategic_merge_knows_its_directives(client):
    await client.post(f"{APPS}/deployments", deployment())
    path = ["spec", "template", "spec"]

    async def patched(spec):
        answer = await client.patch(f"{APPS}/deployments/web", {"spec": {"template": {"spec": spec}}}, STRATEGIC)
        assert answer.code == 200, answer.body
        found = answer.body
        for key in path:
            found = found[key]
        return found

    containers = [{"name": "side", "image": "s:1"}, {"name": "third", "image": "t:1"}]
    order = [{"name": "main"}, {"name": "side"}, {"name": "third"}]
    spec = await patched({"containers": containers, "$setElementOrder/containers": order})
    assert [container["name"] for container in spec["containers"]] == ["main", "side", "third"]
    spec = await patched({"containers": [{"$patch": "replace"}, {"name": "only", "image": "o:1"}]})
    assert [container["name"] for container in spec["containers"]] == ["only"]
    recreate = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    answer = await client.patch(f"{APPS}/deployments/web", recreate, STRATEGIC)
    assert answer.body["spec"]["strategy"] == {"type": "Recreate"}
    await client.patch(f"{APPS}/deployments/web", {"metadata": {"finalizers": ["a.b/x", "a.b/y"]}}, MERGE)
    removal = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/x"]}}
    answer = await client.patch(f"{APPS}/deployments/web", removal, STRATEGIC)
    assert answer.body["metadata"]["finalizers"] == ["a.b/y"]


async def test_logs_come_from_the_node_agent(client):
    async def agent(request: web.BaseRequest) -> web.Response:
        return web.Response(text=f"{request.path}?{request.query_string}\n")

    runner = web.ServerRunner(web.Server(agent))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    endpoint = {"kubeletEndpoint": {"Port": runner.addresses[0][1]}}
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    status = {"addresses": addresses, "daemonEndpoints": endpoint}
    await client.post("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})
    await client.post(f"{CORE}/pods", pod(nodeName="n1"))
    answer = await client.get(f"{CORE}/pods/p/log?tailLines=5")
    await runner.cleanup()
    assert answer.body == "/containerLogs/team/p/c?tailLines=5\n"
    assert (await client.get(f"{CORE}/pods/p/log?container=other")).code == 400


async def test_events_are_one_store_in_two_groups(client):
    involved = {"kind": "Pod", "name": "p", "namespace": "team"}
    core = {"metadata": {"name": "e"}, "involvedObject": involved, "reason": "R", "message": "m", "type": "Normal"}
    await client.post(f"{CORE}/events", core)
    seen = await client.get("/apis/events.k8s.io/v1/namespaces/team/events/e")
    assert (seen.body["note"], seen.body["regarding"]["name"]) == ("m", "p")
    found = await client.get(f"{CORE}/events?fieldSelector=involvedObject.name%3Dp,reason%3DR")
    assert len(found.body["items"]) == 1


async def test_autoscalers_are_served_in_both_versions(client):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "maxReplicas": 4, "targetCPUUtilizationPercentage": 60}
    old = "/apis/autoscaling/v1/namespaces/team/horizontalpodautoscalers"
    made = await client.post(old, {"metadata": {"name": "h"}, "spec": spec})
    assert made.body["spec"]["targetCPUUtilizationPercentage"] == 60
    new = await client.get("/apis/autoscaling/v2/namespaces/team/horizontalpodautoscalers/h")
    assert new.body["spec"]["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 60}


async def test_paths_that_lead_nowhere(client):
    built_in = await client.get("/api/v1/namespaces/team/gizmos")
    assert (built_in.code, built_in.body["message"]) == (404, "the server could not find the requested resource")
    unknown = await client.get("/apis/nope.example.dev/v1/things")
    assert (unknown.code, unknown.body) == (404, "404 page not found\n")
    assert (await client.post(f"{CORE}/pods/p", pod())).code == 405

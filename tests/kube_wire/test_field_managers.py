"""Server-side apply beyond the recording: several conflicts, untracked objects, atomic fields, kubectl's own way."""

import json

from .conftest import deployment

APPS, CORE = "/apis/apps/v1/namespaces/team", "/api/v1/namespaces/team"


def config(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def owners(answer):
    return {(e["manager"], e["operation"]): e["fieldsV1"] for e in answer.body["metadata"].get("managedFields", ())}


async def test_all_conflicts_are_told_by_manager(client):
    await client.apply(f"{CORE}/configmaps/c", config(a="1", b="1"), "one")
    await client.apply(f"{CORE}/configmaps/c", config(c="1"), "two")
    refused = await client.apply(f"{CORE}/configmaps/c", config(a="2", b="2", c="2"), "three")
    assert refused.body["message"] == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .data.a\n- .data.b\nconflicts with "two":\n- .data.c'
    )
    assert refused.body["reason"] == "Conflict"


async def test_equal_values_are_owned_together_and_go_with_the_last_owner(client):
    await client.apply(f"{CORE}/configmaps/c", config(a="1", b="1"), "one")
    await client.apply(f"{CORE}/configmaps/c", config(a="1"), "two")
    left = await client.apply(f"{CORE}/configmaps/c", config(b="1"), "one")
    assert left.body["data"] == {"a": "1", "b": "1"}
    gone = await client.apply(f"{CORE}/configmaps/c", {k: v for k, v in config().items() if k != "data"}, "two")
    assert gone.body["data"] == {"b": "1"}


async def test_forgotten_owners_come_back_as_before_the_first_apply(client):
    await client.post(f"{CORE}/configmaps", config(a="1", b="1"))
    forgotten = await client.patch(f"{CORE}/configmaps/c", {"metadata": {"managedFields": [{}]}})
    assert owners(forgotten) == {}
    refused = await client.apply(f"{CORE}/configmaps/c", config(a="2"), "one")
    assert 'conflict with "before-first-apply" using v1: .data.a' in refused.body["message"]
    taken = await client.apply(f"{CORE}/configmaps/c", config(a="2"), "one", force=True)
    assert set(owners(taken)) == {("one", "Apply"), ("before-first-apply", "Update")}


async def test_atomic_fields_are_owned_whole(client):
    await client.apply(f"{APPS}/deployments/web", deployment(), "one")
    selector = deployment()
    selector["metadata"]["labels"] = {"x": "y"}
    del selector["spec"]["template"]
    answer = await client.apply(
        f"{APPS}/deployments/web", {**selector, "spec": {"selector": selector["spec"]["selector"]}}, "two"
    )
    assert owners(answer)[("two", "Apply")] == {"f:metadata": {"f:labels": {"f:x": {}}}, "f:spec": {"f:selector": {}}}


async def test_list_items_keep_the_order_of_who_applies_them(client):
    def with_ports(*ports):
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
        return {**body, "spec": {"ports": [{"name": f"p{port}", "port": port} for port in ports]}}

    await client.apply(f"{CORE}/services/s", with_ports(1, 2, 3), "one")
    merged = await client.apply(f"{CORE}/services/s", with_ports(9, 3, 1), "two")
    assert [port["port"] for port in merged.body["spec"]["ports"]] == [2, 9, 3, 1]


async def test_kubectl_may_take_over_what_it_applied_on_its_own_side(client):
    body = config(a="1")
    body["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(config(a="1"))}
    await client.post(f"{CORE}/configmaps?fieldManager=kubectl-client-side-apply", body)
    assert (await client.apply(f"{CORE}/configmaps/c", config(a="2"), "other")).code == 409
    assert (await client.apply(f"{CORE}/configmaps/c", config(a="2"), "kubectl")).body["data"] == {"a": "2"}


async def test_a_dry_run_changes_nothing(client):
    await client.apply(f"{CORE}/configmaps/c", config(a="1"), "one")
    before = await client.get(f"{CORE}/configmaps/c")
    seen = await client.patch(f"{CORE}/configmaps/c?dryRun=All", {"data": {"a": "2"}})
    assert seen.body["data"] == {"a": "2"}
    assert (await client.get(f"{CORE}/configmaps/c")).body == before.body


async def test_a_dry_run_deletes_nothing(client):
    await client.post(f"{CORE}/configmaps", config(a="1"))
    answer = await client.delete(f"{CORE}/configmaps/c?dryRun=All")
    assert (answer.code, answer.body["status"]) == (200, "Success")
    assert (await client.get(f"{CORE}/configmaps/c")).code == 200


async def test_a_patch_moves_no_object(client):
    await client.post(f"{CORE}/configmaps", config(a="1"))
    for change in ({"name": "d"}, {"namespace": "other"}):
        refused = await client.patch(f"{CORE}/configmaps/c", {"metadata": change})
        assert (refused.code, refused.body["reason"]) == (400, "BadRequest")


async def test_fields_nobody_declared_cannot_be_applied(client):
    refused = await client.apply(f"{CORE}/configmaps/c", {**config(a="1"), "dta": {}}, "one")
    assert refused.code == 500
    assert ".dta: field not declared in schema" in refused.body["message"]

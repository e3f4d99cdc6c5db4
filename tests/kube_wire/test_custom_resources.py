"""Custom resources: rules over values and transitions, ratcheting, versions, definitions that are refused, clean-up."""

import pytest

from .conftest import boat, definition

DEFINITIONS, BOATS = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/yard.example.dev/v1/namespaces/team/boats",
)


def schema(spec, **root):
    return {"type": "object", "properties": {"spec": {"type": "object", **spec}}, **root}


async def serve(client, spec, **version):
    made = await client.post(DEFINITIONS, definition(schema(spec), **version))
    assert made.code == 201, made.body


RULES = {
    "properties": {
        "masts": {"type": "integer", "maximum": 5},
        "name": {"type": "string", "maxLength": 20},
        "launched": {"type": "string", "format": "date-time"},
        "load": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 5},
        "crew": {
            "type": "array",
            "maxItems": 5,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id"],
            "items": {
                "type": "object",
                "required": ["id"],
                "properties": {"id": {"type": "integer"}, "rank": {"type": "integer"}},
                "x-kubernetes-validations": [{"rule": "self.rank >= oldSelf.rank", "message": "no demotion"}],
            },
        },
        "sail-area": {"type": "integer"},
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.masts) || self.masts > 0", "messageExpression": "'needs masts, has ' + string(self.masts)"},
        {
            "rule": "!has(self.name) || !has(oldSelf.name) || self.name == oldSelf.name",
            "reason": "FieldValueForbidden",
            "fieldPath": ".name",
            "message": "a ship keeps its name",
        },
        {"rule": "!has(self.load) || self.load.all(k, self.load[k] < 100)"},
        {"rule": "!has(self.sail__dash__area) || self.sail__dash__area <= 50"},
        {"rule": "!has(self.launched) || self.launched > timestamp('2000-01-01T00:00:00Z')", "message": "too old"},
        {"rule": "!has(self.name) || self.name.lowerAscii() == self.name"},
    ],
}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"masts": 0}, "needs masts, has 0"),
        ({"load": {"tea": 100}}, "failed rule: !has(self.load) || self.load.all(k, self.load[k] < 100)"),
        ({"sail-area": 51}, "failed rule: !has(self.sail__dash__area) || self.sail__dash__area <= 50"),
        ({"launched": "1999-12-31T00:00:00Z"}, "too old"),
        ({"name": "Ann"}, "failed rule: !has(self.name) || self.name.lowerAscii() == self.name"),
    ],
)
async def test_rules_say_what_is_wrong(client, spec, message):
    await serve(client, RULES)
    refused = await client.post(BOATS, boat("a", spec))
    assert (refused.code, refused.causes) == (422, {("spec", "FieldValueInvalid")})
    assert message in refused.body["message"]


async def test_rules_over_transitions_see_the_old_object(client):
    await serve(client, RULES)
    await client.post(BOATS, boat("a", {"name": "ann", "crew": [{"id": 1, "rank": 3}, {"id": 2, "rank": 1}]}))
    renamed = await client.patch(f"{BOATS}/a", {"spec": {"name": "bea"}})
    assert renamed.causes == {("spec.name", "FieldValueForbidden")}
    crew = [{"id": 2, "rank": 2}, {"id": 3, "rank": 0}, {"id": 1, "rank": 2}]
    demoted = await client.patch(f"{BOATS}/a", {"spec": {"crew": crew}})
    assert demoted.causes == {("spec.crew[2]", "FieldValueInvalid")}
    assert (await client.patch(f"{BOATS}/a", {"spec": {"crew": crew[:2]}})).code == 200


async def test_optional_old_self_also_runs_at_creation(client):
    rule = {"rule": "oldSelf.hasValue() || self.masts == 1", "optionalOldSelf": True, "message": "starts with one"}
    await serve(client, {"properties": {"masts": {"type": "integer"}}, "x-kubernetes-validations": [rule]})
    assert (await client.post(BOATS, boat("a", {"masts": 2}))).code == 422
    assert (await client.post(BOATS, boat("a", {"masts": 1}))).code == 201
    assert (await client.patch(f"{BOATS}/a", {"spec": {"masts": 2}})).code == 200


async def test_what_was_stored_is_not_held_against_later_writes(client):
    await serve(client, {"properties": {"masts": {"type": "integer"}, "name": {"type": "string"}}})
    await client.post(BOATS, boat("a", {"masts": 9, "name": "ann"}))
    stricter = await client.get(f"{DEFINITIONS}/boats.yard.example.dev")
    properties = stricter.body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["masts"]["maximum"] = 5
    assert (await client.put(f"{DEFINITIONS}/boats.yard.example.dev", stricter.body)).code == 200
    assert (await client.patch(f"{BOATS}/a", {"spec": {"name": "bea"}})).code == 200
    assert (await client.patch(f"{BOATS}/a", {"spec": {"masts": 8}})).causes == {("spec.masts", "FieldValueInvalid")}


async def test_versions_share_one_store(client):
    made = definition(schema({"properties": {"masts": {"type": "integer"}}}))
    made["spec"]["versions"].append({**made["spec"]["versions"][0], "name": "v2", "storage": False})
    await client.post(DEFINITIONS, made)
    await client.post(BOATS, boat("a", {"masts": 1}))
    newer = "/apis/yard.example.dev/v2/namespaces/team/boats"
    seen = await client.get(f"{newer}/a")
    assert (seen.body["apiVersion"], seen.body["spec"]) == ("yard.example.dev/v2", {"masts": 1})
    assert (await client.patch(f"{newer}/a", {"spec": {"masts": 2}})).code == 200
    assert (await client.get(f"{BOATS}/a")).body["spec"] == {"masts": 2}
    group = await client.get("/apis/yard.example.dev")
    assert [version["version"] for version in group.body["versions"]] == ["v2", "v1"]


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"properties": {"a": {"type": "array"}}}, "properties[spec].properties[a].items", "FieldValueRequired"),
        (
            {"properties": {"a": {"type": "string", "x-kubernetes-list-type": "set"}}},
            "properties[spec].properties[a].type",
            "FieldValueInvalid",
        ),
        (
            {"additionalProperties": {"type": "string"}, "properties": {"a": {"type": "string"}}},
            "properties[spec].additionalProperties",
            "FieldValueForbidden",
        ),
        (
            {"x-kubernetes-validations": [{"rule": "self.a + 1 > 2"}], "properties": {"a": {"type": "string"}}},
            "properties[spec].x-kubernetes-validations[0].rule",
            "FieldValueInvalid",
        ),
        (
            {"x-kubernetes-validations": [{"rule": "size(self.a)"}], "properties": {"a": {"type": "string"}}},
            "properties[spec].x-kubernetes-validations[0].rule",
            "FieldValueInvalid",
        ),
        (
            {
                "properties": {
                    "a": {
                        "type": "array",
                        "maxItems": 3,
                        "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]},
                    }
                }
            },
            "properties[spec].properties[a].items.x-kubernetes-validations[0].rule",
            "FieldValueInvalid",
        ),
    ],
)
async def test_definitions_that_are_refused(client, spec, field, reason):
    refused = await client.post(DEFINITIONS, definition(schema(spec)))
    assert refused.code == 422
    assert (f"spec.validation.openAPIV3Schema.{field}", reason) in refused.causes


async def test_tables_have_the_columns_of_the_definition(client):
    columns = [{"name": "Masts", "type": "integer", "jsonPath": ".spec.masts"}]
    await serve(client, {"properties": {"masts": {"type": "integer"}}}, additionalPrinterColumns=columns)
    await client.post(BOATS, boat("a", {"masts": 3}))
    table = await client.get(BOATS, Accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    assert [column["name"] for column in table.body["columnDefinitions"]] == ["Name", "Masts"]
    assert [row["cells"] for row in table.body["rows"]] == [["a", 3]]


async def test_a_definition_goes_with_its_objects_and_waits_for_their_finalizers(client):
    await serve(client, {"properties": {"masts": {"type": "integer"}}})
    await client.post(BOATS, boat("a", {}))
    await client.post(BOATS, boat("held", {}, finalizers=["yard.example.dev/hold"]))
    await client.delete(f"{DEFINITIONS}/boats.yard.example.dev")
    assert [item["metadata"]["name"] for item in (await client.get(BOATS)).body["items"]] == ["held"]
    assert (await client.get(f"{DEFINITIONS}/boats.yard.example.dev")).code == 200
    await client.patch(f"{BOATS}/held", {"metadata": {"finalizers": None}})
    assert (await client.get(f"{DEFINITIONS}/boats.yard.example.dev")).code == 404
    assert (await client.get(BOATS)).body == "404 page not found\n"


async def test_a_second_definition_cannot_take_a_kind(client):
    await serve(client, {})
    other = definition(schema({}), "ships")
    other["spec"]["names"]["kind"] = "Boat"
    await client.post(DEFINITIONS, other)
    seen = await client.get(f"{DEFINITIONS}/ships.yard.example.dev")
    conditions = {entry["type"]: entry["status"] for entry in seen.body["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "False", "Established": "False"}
    assert (await client.get("/apis/yard.example.dev/v1/namespaces/team/ships")).code == 404


async def test_parts_that_are_not_served(client):
    await serve(client, {}, subresources={"status": {}})
    await client.post(BOATS, boat("a", {}))
    assert (await client.get(f"{BOATS}/a/scale")).body["reason"] == "NotFound"
    refused = await client.post(f"{BOATS}/a/status", boat("a", {}))
    assert (refused.code, refused.body["reason"]) == (405, "MethodNotAllowed")

"""The web page and the receivers of notifications, as values ask for them."""

import json
from typing import Any

from slipway.cli import _parser
from slipway.cli.run import settings_of
from slipway.notifications import receivers_of
from slipway.notifications.news import NewsKind

from tests.chart.rendering import CHART, MATRIX, deployment, of_kind, rendered

BOTH = MATRIX["page and notifications"]
LOCAL = MATRIX["page for port-forwards"]


def pod(values: Any) -> dict[str, Any]:
    found: dict[str, Any] = deployment(values)["spec"]["template"]["spec"]
    return found


def settings(values: Any) -> Any:
    return settings_of(_parser(["run"]).parse_args(pod(values)["containers"][0]["args"]))


def test_the_page_is_off_by_default_and_then_inside_the_pod_only() -> None:
    assert settings({}).web_port is None
    local = settings(LOCAL)
    assert (local.web_port, local.web_host) == (8086, "127.0.0.1")
    assert not of_kind(rendered(LOCAL), "Service")
    assert [port["name"] for port in pod(LOCAL)["containers"][0]["ports"]] == ["http"]


def test_an_exposed_page_has_a_service_and_its_names() -> None:
    told = settings(BOTH)
    assert (told.web_port, told.web_host, told.web_names) == (8086, "*", ("slipway.example",))
    [service] = of_kind(rendered(BOTH), "Service")
    assert (service["metadata"]["name"], service["spec"]["ports"][0]["targetPort"]) == ("slipway-web", "web")
    ports = {port["name"]: port["containerPort"] for port in pod(BOTH)["containers"][0]["ports"]}
    assert ports == {"http": 8085, "web": 8086}


def test_the_network_policy_lets_readers_in_and_notifications_out() -> None:
    [policy] = of_kind(rendered(BOTH), "NetworkPolicy")
    scrapes, page = policy["spec"]["ingress"]
    assert (scrapes["ports"][0]["port"], page["ports"][0]["port"]) == ("http", "web")
    assert page["from"] == BOTH["networkPolicy"]["readers"]
    assert [{"port": 8443, "protocol": "TCP"}] in [rule["ports"] for rule in policy["spec"]["egress"]]
    [closed] = of_kind(rendered({"networkPolicy": {"enabled": True}, **LOCAL}), "NetworkPolicy")
    assert [rule["ports"][0]["port"] for rule in closed["spec"]["ingress"]] == ["http"]


def test_receivers_are_those_of_the_values_with_secrets_as_files() -> None:
    spec = pod(BOTH)
    (variable,) = [entry for entry in spec["containers"][0]["env"] if entry["name"] == "SLIPWAY_NOTIFICATIONS"]
    ops, pipeline = receivers_of(variable["value"])
    assert ops.kinds == {NewsKind.ROLLED_BACK}
    assert ops.url_file == "/etc/slipway/notifications/ops/url"
    assert (pipeline.url, pipeline.namespaces) == ("https://events.ci.svc:8443/slipway", frozenset({"nlp"}))
    assert pipeline.token_file == "/etc/slipway/notifications/pipeline/token"
    (volume,) = [entry for entry in spec["volumes"] if entry["name"] == "notifications"]
    (mount,) = [entry for entry in spec["containers"][0]["volumeMounts"] if entry["name"] == "notifications"]
    files = {
        f"{mount['mountPath']}/{item['path']}": (source["secret"]["name"], item["key"], source["secret"]["optional"])
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }
    assert files == {ops.url_file: ("chat", "url", True), pipeline.token_file: ("ci", "token", True)}
    assert settings(BOTH).cluster_name == "berlin"


def test_without_receivers_there_is_no_trace_of_them() -> None:
    spec = pod({})
    assert [volume["name"] for volume in spec["volumes"]] == ["tmp", "token"]
    assert "SLIPWAY_NOTIFICATIONS" not in {entry["name"] for entry in spec["containers"][0]["env"]}


def test_every_kind_of_news_can_be_chosen() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = schema["properties"]["notifications"]["items"]["properties"]["events"]["items"]["enum"]
    assert known == [kind.value for kind in NewsKind]


def test_no_secret_is_asked_for_through_the_api_server() -> None:
    rules = [rule for obj in rendered(BOTH) for rule in obj.get("rules", ())]
    assert rules
    assert not [rule for rule in rules if "secrets" in rule["resources"]]
